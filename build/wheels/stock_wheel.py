"""A jaxlib wheel as it was published: downloads it, and checks it before it is used."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version
from wheel.wheelfile import WheelError, WheelFile

from machine import environments, targets
from machine.pythons import Interpreter
from machine.targets import MACHINES, Target
from paths import STATE, WHEELS
from progress import Report, advancing, nothing
from refusal import Refusal, refusing_os_errors
from wheels.seam import JAX, LIBRARY, LOCAL_LABEL, PJIT, check_library, no_library

_CHUNK = 1 << 20
_BROKEN = (
    WheelError,
    zipfile.BadZipFile,
    zlib.error,
    csv.Error,
    EOFError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)


class StockWheel(NamedTuple):
    """A jaxlib wheel that has been checked."""

    path: Path
    version: Version
    interpreter: str  # the first two parts of its tag, such as cp311-cp311
    platforms: set[str]


def download(version: str, target: Target) -> Path:
    """The jaxlib wheel of a release for a target, downloaded by pip once.

    Raises:
      Refusal: pip finds no such wheel.
    """
    wanted = Version(version)
    folder = WHEELS / target.label / str(wanted)
    # A file that was deleted or cut short is downloaded again.
    if not any(zipfile.is_zipfile(file) for file in folder.glob("jaxlib-*.whl")):
        with refusing_os_errors(f"download to {folder}"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                whole = Path(temporary) / "whole"
                environments.download(f"jaxlib=={wanted}", target, whole)
                shutil.rmtree(folder, ignore_errors=True)
                whole.rename(folder)
    (wheel,) = folder.glob("jaxlib-*.whl")
    return wheel


def newest(python: Interpreter) -> str | None:
    """The version of the jaxlib of the newest jax for this Python, or None if there is none."""
    try:
        packages = environments.resolved("jax", python)
    except Refusal:
        return None
    versions = dict(package.split("==") for package in packages)
    return versions["jaxlib"]


def check(path: Path, target: Target, report: Report = nothing) -> StockWheel:
    """Checks a wheel: its name, its target, every hash, and the seam.

    Raises:
      Refusal: something is wrong with it.
    """
    wheel = named(path, target)
    if is_ours(wheel.version):
        raise _ours(path)
    with opened(path) as file:
        _check_contents(file, wheel, report)
    return wheel


def is_ours(version: Version) -> bool:
    """Whether a version has the label of our wheels."""
    return LOCAL_LABEL in (version.local or "").split(".")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[WheelFile]:
    """Opens a wheel, none of whose file names leads outside of it.

    Raises:
      Refusal: it cannot be read, or the block finds that it is broken.
    """
    with refusing_os_errors(f"read {path}"):
        try:
            _check_entries(path)
            with WheelFile(path) as file:
                yield file
        except _BROKEN as error:
            raise Refusal(f"{path}: corrupt or truncated ({error}); get it again") from error
        except OSError as error:
            # Raised for a seek to before the start of the file.
            if error.errno != errno.EINVAL:
                raise
            raise Refusal(f"{path}: corrupt or truncated; get it again") from error


def version_of(path: Path) -> Version:
    """The version in the name of a wheel."""
    return parse_wheel_filename(path.name)[1]


def named(path: Path, target: Target) -> StockWheel:
    """What a wheel's name says.

    Raises:
      Refusal: the wheel is missing, is not jaxlib's, or is not for this target.
    """
    version, tags = _parsed(path)
    _check_tags(path, tags, target)
    return StockWheel(path, version, target.tag, {each.platform for each in tags})


def target_of(path: Path) -> Target:
    """The target that a wheel's name says it is for.

    Raises:
      Refusal: the wheel is missing, is not jaxlib's, or is not for one CPython on a machine that
        we build for.
    """
    _, tags = _parsed(path)
    machine = _machine(path, tags)
    if len({(tag.interpreter, tag.abi) for tag in tags}) == 1:
        tag = next(iter(tags))
        with contextlib.suppress(Refusal):
            target = targets.target(tag.abi, machine)
            if tag.interpreter == target.name:
                return target
    raise Refusal(f"{path}: is for {_pythons(tags)}; give a wheel of jaxlib for one CPython")


def _parsed(path: Path) -> tuple[Version, frozenset[Tag]]:
    if not path.is_file():
        raise Refusal(f"{path}: not found; give the path of a jaxlib wheel")
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise Refusal(f"{path}: is not a wheel, by its name; give a jaxlib wheel") from error
    if name != "jaxlib":
        raise Refusal(f"{path}: is a wheel of {name}; give a jaxlib wheel")
    return version, tags


def _check_tags(path: Path, tags: frozenset[Tag], target: Target) -> None:
    if {f"{tag.interpreter}-{tag.abi}" for tag in tags} != {target.tag}:
        raise Refusal(
            f"{path}: is for {_pythons(tags)}, but the Python is {target.tag}; "
            "give --python the one that it is for"
        )
    machine = _machine(path, tags)
    if machine != target.machine:
        raise Refusal(f"{path}: is for {machine}, not for {target.machine}; give another wheel")


def _pythons(tags: frozenset[Tag]) -> str:
    return " and ".join(sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags}))


def _machine(path: Path, tags: frozenset[Tag]) -> str:
    for platform in sorted({tag.platform for tag in tags}):
        on_linux = platform.startswith(("manylinux", "linux_"))
        machines = {machine for machine in MACHINES if platform.endswith(f"_{machine}")}
        if not (on_linux and machines):
            raise Refusal(
                f"{path}: is for {platform}; give a wheel for Linux on {' or '.join(MACHINES)}"
            )
    return machines.pop()


def _check_entries(path: Path) -> None:
    """Refuses an entry that pip would not unpack, or would unpack elsewhere."""
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            parts = info.filename.removesuffix("/").split("/")
            if (
                {"", ".", ".."} & set(parts)
                or not info.filename.isprintable()
                or "\\" in info.filename
            ):
                raise Refusal(f"{path}: has a file named {info.filename!r}; do not install it")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Refusal(
                    f"{path}: {info.filename} has a compression unknown to pip; get it again"
                )


def _ours(path: Path) -> Refusal:
    return Refusal(f"{path}: has our extensions already; install it as it is")


def _check_contents(file: WheelFile, wheel: StockWheel, report: Report) -> None:
    names = file.namelist()
    if PJIT in names:
        raise _ours(wheel.path)
    if LIBRARY not in names or JAX not in names:
        raise no_library(str(wheel.path))
    check_record(file, wheel.path)
    _check_folders(file, wheel.path)
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


def _check_folders(file: WheelFile, path: Path) -> None:
    """Refuses a second dist-info folder, whose name may be that of ours."""
    first_parts = {name.partition("/")[0] for name in file.namelist()}
    more = {name for name in first_parts if name.endswith(".dist-info")} - {file.dist_info_path}
    if more:
        raise Refusal(f"{path}: has {min(more)} beside {file.dist_info_path}; get it again")


def _check_metadata(file: WheelFile, wheel: StockWheel) -> None:
    metadata = headers(file, "METADATA")
    names, versions = metadata.get_all("Name", []), metadata.get_all("Version", [])
    name, version = " ".join(names), " ".join(versions)
    if name != "jaxlib" or Version(version) != wheel.version:
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


def check_record(file: WheelFile, path: Path) -> None:
    """Refuses signatures, duplicate files, and files in RECORD that the wheel lacks.

    WheelFile itself raises for a file that is not in RECORD, and for a wrong hash.
    """
    names = [info.filename for info in file.infolist() if not info.is_dir()]
    twice = sorted({name for name in names if names.count(name) > 1})
    gone = sorted(record(file).keys() - set(names))
    signatures = [name for name in names if name.startswith(f"{file.record_path}.")]
    if gone:
        raise Refusal(f"{path}: lacks {gone[0]}, which its RECORD lists; get it again")
    if twice:
        raise Refusal(f"{path}: has {twice[0]} twice; get it again")
    if signatures:
        raise Refusal(f"{path}: is signed ({signatures[0]}), which would not be true of our wheel")


def headers(file: WheelFile, name: str) -> Message:
    """The headers of a file in the wheel's dist-info folder."""
    return HeaderParser().parsestr(file.read(f"{file.dist_info_path}/{name}").decode())


def record(file: WheelFile) -> dict[str, list[str]]:
    """The rows of the wheel's RECORD (path, hash, size) by their path."""
    rows = csv.reader(io.StringIO(file.read(file.record_path).decode(), newline=""))
    return {row[0]: row for row in rows if row}


def chunks(
    file: WheelFile, info: zipfile.ZipInfo, advance: Callable[[int], None]
) -> Iterator[bytes]:
    """A file's content, piece by piece. WheelFile raises at the end if the hash differs."""
    with file.open(info) as stream:
        while chunk := stream.read(_CHUNK):
            advance(len(chunk))
            yield chunk
