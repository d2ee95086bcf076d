"""A jaxlib wheel as it was published: fetched, and checked before anything is made of it."""

from __future__ import annotations

import csv
import io
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from email.message import Message
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import NamedTuple

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from wheel.wheelfile import WheelError, WheelFile

import environments
from paths import STATE, VENVS, WHEELS
from progress import Report, advancing, nothing
from pythons import Interpreter
from refusal import Refusal, refusing_os_errors
from seam import JAX, LIBRARY, LOCAL_LABEL, PJIT, check_library, no_library

_CHUNK = 1 << 20
_BROKEN = (
    WheelError,
    zipfile.BadZipFile,
    zlib.error,
    csv.Error,
    EOFError,
    KeyError,
    RuntimeError,
    ValueError,
)


class StockWheel(NamedTuple):
    """A jaxlib wheel that has been checked."""

    path: Path
    version: Version
    interpreter: str  # the first two parts of its tag, such as cp311-cp311
    platforms: set[str]


def download(version: str, python: Interpreter) -> Path:
    """The jaxlib wheel of a release for a Python, downloaded by pip once.

    Raises:
      Refusal: that is no version, or pip finds no such wheel.
    """
    try:
        wanted = Version(version)
    except InvalidVersion as error:
        raise Refusal(f"--jaxlib {version}: is no version; give one such as 0.10.2") from error
    folder = WHEELS / python.abi / str(wanted)
    if not folder.is_dir():
        with refusing_os_errors(f"download to {folder}"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                whole = Path(temporary) / "whole"
                options = ["--no-deps", "--only-binary=:all:", "--quiet", "--dest", str(whole)]
                arguments = ["download", f"jaxlib=={wanted}", *options]
                environments.pip(_with_pip(python), arguments, f"pip-download-{python.abi}")
                whole.rename(folder)
    (wheel,) = folder.glob("jaxlib-*.whl")
    return wheel


def _with_pip(python: Interpreter) -> Path:
    # A distribution's Python may have no pip of its own, one in an environment always has.
    return environments.environment(VENVS / f"pip-{python.abi}", python, ["pip"])


def check(path: Path, python: Interpreter, report: Report = nothing) -> StockWheel:
    """Checks a wheel: what it is, whom it is for, every hash, and the seam.

    Raises:
      Refusal: something is wrong with it.
    """
    if not path.is_file():
        raise Refusal(f"{path}: not found; give the path of a jaxlib wheel")
    wheel = _named(path, python)
    with refusing_os_errors(f"read {path}"):
        try:
            with WheelFile(path) as file:
                _check_contents(file, wheel, report)
        except _BROKEN as error:
            raise Refusal(f"{path}: corrupt or truncated ({error}); get it again") from error
    return wheel


def version_of(path: Path) -> Version:
    """The version in the name of a wheel."""
    return parse_wheel_filename(path.name)[1]


def _named(path: Path, python: Interpreter) -> StockWheel:
    """What the wheel's name says, refused where it says that the wheel is not for us."""
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise Refusal(f"{path}: is not a wheel, by its name; give a jaxlib wheel") from error
    if name != "jaxlib":
        raise Refusal(f"{path}: is a wheel of {name}; give a jaxlib wheel")
    if version.local and LOCAL_LABEL in version.local.split("."):
        raise _ours(path)
    _check_tags(path, tags, python)
    tag = next(iter(tags))
    return StockWheel(
        path, version, f"{tag.interpreter}-{tag.abi}", {each.platform for each in tags}
    )


def _check_tags(path: Path, tags: frozenset[Tag], python: Interpreter) -> None:
    pythons = {f"{tag.interpreter}-{tag.abi}" for tag in tags}
    if pythons != {f"{python.name}-{python.abi}"}:
        raise Refusal(
            f"{path}: is for {' and '.join(sorted(pythons))}, but {python.path} is "
            f"{python.name}-{python.abi}; give --python the Python that it is for"
        )
    for platform in sorted({tag.platform for tag in tags}):
        if not (platform.startswith(("manylinux", "linux_")) and platform.endswith(python.machine)):
            raise Refusal(
                f"{path}: is for {platform}, this machine is Linux on {python.machine}; "
                "give a wheel for this machine"
            )


def _ours(path: Path) -> Refusal:
    return Refusal(f"{path}: has our extensions already; install it as it is")


def _check_contents(file: WheelFile, wheel: StockWheel, report: Report) -> None:
    names = file.namelist()
    if PJIT in names:
        raise _ours(wheel.path)
    if LIBRARY not in names or JAX not in names:
        raise no_library(str(wheel.path))
    _check_record(file, wheel.path)
    _check_metadata(file, wheel)
    _check_own_tags(file, wheel)
    advance = advancing(report, sum(info.file_size for info in file.infolist()))
    STATE.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=STATE) as library:
        for info in file.infolist():
            for chunk in chunks(file, info, advance):
                if info.filename == LIBRARY:
                    library.write(chunk)
        check_library(library, f"{wheel.path}: {LIBRARY}")


def _check_metadata(file: WheelFile, wheel: StockWheel) -> None:
    metadata = headers(file, "METADATA")
    name, version = metadata["Name"], metadata["Version"]
    if name != "jaxlib" or Version(version or "") != wheel.version:
        raise Refusal(
            f"{wheel.path}: its METADATA says {name} {version}, its name says "
            f"jaxlib {wheel.version}; get it again"
        )


def _check_own_tags(file: WheelFile, wheel: StockWheel) -> None:
    inside = headers(file, "WHEEL").get_all("Tag", [])
    if set(inside) != {f"{wheel.interpreter}-{platform}" for platform in wheel.platforms}:
        raise Refusal(
            f"{wheel.path}: its WHEEL file has the tags {' '.join(inside) or '(none)'}, its name "
            "others; get it again"
        )


def _check_record(file: WheelFile, path: Path) -> None:
    """Refuses files that RECORD has and the wheel has not, or the wheel has twice.

    The other way round is an error of WheelFile's, like a wrong hash.
    """
    names = [info.filename for info in file.infolist() if not info.is_dir()]
    twice = sorted({name for name in names if names.count(name) > 1})
    gone = sorted(record(file).keys() - set(names))
    if gone:
        raise Refusal(f"{path}: lacks {gone[0]}, which its RECORD lists; get it again")
    if twice:
        raise Refusal(f"{path}: has {twice[0]} twice; get it again")


def headers(file: WheelFile, name: str) -> Message:
    """The headers of a file in the wheel's dist-info folder."""
    return BytesHeaderParser().parsebytes(file.read(f"{file.dist_info_path}/{name}"))


def record(file: WheelFile) -> dict[str, list[str]]:
    """The rows of the wheel's RECORD (path, hash, size) by their path."""
    rows = csv.reader(io.StringIO(file.read(file.record_path).decode(), newline=""))
    return {row[0]: row for row in rows if row}


def chunks(
    file: WheelFile, info: zipfile.ZipInfo, advance: Callable[[int], None]
) -> Iterator[bytes]:
    """A file's content, piece by piece; WheelFile raises at the end where the hash is another."""
    with file.open(info) as stream:
        while chunk := stream.read(_CHUNK):
            advance(len(chunk))
            yield chunk
