"""Makes our wheel from a stock one: replaces `_jax.so` with ours, and adds our other files.

Everything else is the stock wheel's, byte for byte. The same input gives the same output, byte for
byte, and a wheel appears whole or not at all.
"""

from __future__ import annotations

import base64
import copy
import csv
import hashlib
import io
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wheel.wheelfile import WheelFile

from machine.targets import Target
from paths import ROOT, STAMPS, TOOL_REQUIREMENTS
from progress import Report, advancing, nothing
from refusal import refusing_os_errors
from wheels.extension_checks import check_extensions
from wheels.platform_tag import newest_platform
from wheels.seam import ENTRY_POINTS, JAX, LOCAL_LABEL, MODULES, PJIT, Extensions
from wheels.stock_wheel import StockWheel, chunks, record


def repack(
    stock: StockWheel,
    extensions: Extensions,
    target: Target,
    out: Path,
    report: Report = nothing,
    accept: Callable[[Path], None] = lambda wheel: None,
) -> Path:
    """Writes our wheel into a folder, which is created if it is missing.

    Writes nothing if the same wheel is there, made from the same inputs.

    Args:
      accept: called with the finished wheel before it appears; if it raises, no wheel appears.

    Returns:
      The path of the wheel.

    Raises:
      Refusal: it cannot be written there, or an extension was built wrong.
    """
    check_extensions(extensions, target.machine)
    platform = newest_platform(stock.platforms, extensions, target)
    separator = "." if stock.version.local else "+"
    version = f"{stock.version}{separator}{LOCAL_LABEL}"
    wheel = out / f"jaxlib-{version}-{stock.interpreter}-{platform}.whl"
    with refusing_os_errors(f"write {wheel}"):
        stamp = STAMPS / f"{_digest_of_inputs(stock.path, extensions, wheel.name)}.sha256"
        if stamp.is_file() and wheel.is_file() and stamp.read_text() == sha256_of(wheel):
            return wheel
        out.mkdir(parents=True, exist_ok=True)
        with _appearing_whole(wheel) as part, WheelFile(stock.path) as source:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:
                changes = _replacements(source, stock, extensions, version, platform)
                _fill(file, source, changes, version, report)
            accept(part)
            digest = sha256_of(part)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digest)
    return wheel


def sha256_of(path: Path) -> str:
    """The hash of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _digest_of_inputs(stock: Path, extensions: Extensions, name: str) -> str:
    """A hash of all that the wheel's bytes depend on: the inputs, this code, and zlib."""
    code = sorted(Path(__file__).parent.glob("*.py"))
    modules = (ROOT / file for file in MODULES.values())
    files = (stock, *extensions, *modules, *code, TOOL_REQUIREMENTS)
    parts = [name, zlib.ZLIB_RUNTIME_VERSION, *(sha256_of(file) for file in files)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@contextmanager
def _appearing_whole(target: Path) -> Iterator[Path]:
    # Under its own name, which pip reads.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as folder:
        part = Path(folder) / target.name
        yield part
        part.replace(target)


def _replacements(
    source: WheelFile, stock: StockWheel, extensions: Extensions, version: str, platform: str
) -> dict[str, bytes]:
    """The content of the files that change, by their names in the stock wheel, and of new ones."""
    metadata, tags = f"{source.dist_info_path}/METADATA", f"{source.dist_info_path}/WHEEL"
    with_tag = _with_header("Tag", f"{stock.interpreter}-{platform}", source.read(tags))
    return {
        JAX: extensions.jax.read_bytes(),
        PJIT: extensions.pjit.read_bytes(),
        **{name: (ROOT / file).read_bytes() for name, file in MODULES.items()},
        _entry_points(source): _with_entry_points(source),
        metadata: _with_header("Version", version, source.read(metadata), count=1),
        # A wheel with two names for its platform has two Tag lines, which are now the same.
        tags: b"".join(dict.fromkeys(with_tag.splitlines(keepends=True))),
    }


def _entry_points(source: WheelFile) -> str:
    return f"{source.dist_info_path}/entry_points.txt"


def _with_entry_points(source: WheelFile) -> bytes:
    """The stock wheel's entry points, and ours."""
    name = _entry_points(source)
    stock = source.read(name) + b"\n" if name in source.namelist() else b""
    return stock + ENTRY_POINTS.encode()


def _with_header(name: str, value: str, content: bytes, count: int = 0) -> bytes:
    line = re.compile(rf"^{name}:[^\r\n]*".encode(), re.MULTILINE)
    return line.sub(f"{name}: {value}".encode(), content, count)


def _fill(
    wheel: zipfile.ZipFile,
    source: WheelFile,
    replacements: dict[str, bytes],
    version: str,
    report: Report,
) -> None:
    """Writes all entries in the stock wheel's order, each new one in its place, RECORD last."""
    folder = re.compile(rf"^{re.escape(source.dist_info_path)}(?=/)")
    rows, stock_rows = [], record(source)
    advance = advancing(report, sum(info.file_size for info in source.infolist()))
    for info in _entries(source):
        name = folder.sub(f"jaxlib-{version}.dist-info", info.filename)
        if info.filename in replacements:
            content = replacements[info.filename]
            _write(wheel, info, name, [content], len(content))
            rows.append([name, *_hash_and_size(content)])
        else:
            _write(wheel, info, name, chunks(source, info, advance), info.file_size)
            if not info.is_dir():
                rows.append([name, *stock_rows[info.filename][1:]])
    _write_record(wheel, source, f"jaxlib-{version}.dist-info/RECORD", rows)


def _entries(source: WheelFile) -> Iterator[zipfile.ZipInfo]:
    metadata = f"{source.dist_info_path}/METADATA"
    has_entry_points = _entry_points(source) in source.namelist()
    for info in source.infolist():
        if info.filename == source.record_path:
            continue
        yield info
        if info.filename == JAX:
            yield from (_added(info, name) for name in (PJIT, *MODULES))
        if info.filename == metadata and not has_entry_points:
            yield _added(info, _entry_points(source))


def _added(like: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    added = copy.copy(like)
    added.filename = name
    if name in MODULES:
        added.external_attr = (stat.S_IFREG | 0o644) << 16
    return added


def _write(
    wheel: zipfile.ZipFile, like: zipfile.ZipInfo, name: str, content: Iterable[bytes], size: int
) -> None:
    """Writes one entry with the date, the mode and the compression of another."""
    info = zipfile.ZipInfo(name, like.date_time)
    info.external_attr = like.external_attr
    info.compress_type = like.compress_type
    info.file_size = size  # tells zipfile whether the entry needs its 64-bit form
    with wheel.open(info, "w") as entry:
        for chunk in content:
            entry.write(chunk)


def _write_record(
    wheel: zipfile.ZipFile, source: WheelFile, name: str, rows: list[list[str]]
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([*rows, [name, "", ""]])
    content = text.getvalue().encode()
    _write(wheel, source.getinfo(source.record_path), name, [content], len(content))


def _hash_and_size(content: bytes) -> tuple[str, str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}", str(len(content))
