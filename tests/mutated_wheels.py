"""Breaks small wheels at random, in the ways of a bad disk, download, tool or attacker."""

from __future__ import annotations

import csv
import io
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from synthetic_wheels import STAMP, hash_of
from wheels.seam import LIBRARY, PJIT

Entries = list[tuple[str, bytes]]
Mutation = Callable[[Random, Path], bytes]

_INFO = "jaxlib-9.9.9.dist-info"
_NAMES = (
    *(
        "../x",
        "/x",
        "/",
        "..",
        ".",
        "",
        "jaxlib/../../x",
        "jaxlib//x",
        "./jaxlib/_jax.so",
        "jaxlib/",
    ),
    *("C:\\x", "..\\x", "jaxlib\\_jax.so", "a\nb", "a\rb", "a\0b", "a,b", 'a"b', "x" * 300, "\x7f"),
    *("jaxlib/_jax.so/", "jaxlib/_jax.so/x", "JAXLIB/_JAX.SO", "jaxlib/é", "\U0001f511", "\u202e"),
    *(f"{_INFO}/RECORD.jws", f"{_INFO}/RECORD/x", "jaxlib-9.9.9.dist-info", "x.dist-info/METADATA"),
    *("jaxlib-9.9.9.data/scripts/x", "jaxlib-9.9.9+physical1.dist-info/RECORD", PJIT, f"{_INFO}/"),
)
_WORDS = (
    *(b"", b"\0", b"\xff\xfe", b"\n", b"\r", b"\r\n", b",", b'"', b"'", b":", b"..", b"/", b"\\"),
    *(b"sha256=", b"md5=", b"sha999=", b"-1", b"1e9", b"9" * 30, b"x" * 200_000, "é".encode()),
    *(b"Version: 1.0\n", b"Name: x\n", b"Tag: py3-none-any\n", b"Wheel-Version: 9.0\n", b"\n\n"),
    *(b"Version:\n", b"Root-Is-Purelib: \xff\n", b"\xef\xbb\xbf", b" folded\n", b"9.9.9!1", b"+x"),
)
_METHODS = (
    *(zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA),
    *(93, 99, 1, 0xFFFF),
)
_NUMBERS = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFE, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF)
_BOMB = 1 << 24


class Field(NamedTuple):
    """A number in one of zip's headers."""

    header: bytes
    offset: int
    form: str


_FIELDS = (
    *(Field(b"PK\1\2", offset, "<H") for offset in (4, 6, 8, 10, 12, 14, 28, 30, 32, 34, 36)),
    *(Field(b"PK\1\2", offset, "<I") for offset in (16, 20, 24, 38, 42)),
    *(Field(b"PK\3\4", offset, "<H") for offset in (4, 6, 8, 10, 12, 26, 28)),
    *(Field(b"PK\3\4", offset, "<I") for offset in (14, 18, 22)),
    *(Field(b"PK\5\6", offset, "<H") for offset in (4, 6, 8, 10, 20)),
    *(Field(b"PK\5\6", offset, "<I") for offset in (12, 16)),
)


def _entries(wheel: Path) -> Entries:
    with zipfile.ZipFile(wheel) as file:
        return [(info.filename, file.read(info)) for info in file.infolist()]


def _zipped(entries: Entries, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    whole = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(whole, "w", method) as file:
        warnings.simplefilter("ignore")  # for a name that occurs twice
        for name, content in entries:
            info = zipfile.ZipInfo("x", STAMP)
            info.filename = name  # the raw name: the constructor would fix it
            info.external_attr = 0o100644 << 16
            info.compress_type = method
            file.writestr(info, content)
    return whole.getvalue()


def _signed(entries: Entries) -> Entries:
    """The same with a correct RECORD, so that the checks after the hashes are reached."""
    kept = [(name, content) for name, content in entries if name != f"{_INFO}/RECORD"]
    text = io.StringIO()
    rows = [
        [name, hash_of(content), str(len(content))] for name, content in kept if name[-1:] != "/"
    ]
    csv.writer(text, lineterminator="\n").writerows([*rows, [f"{_INFO}/RECORD", "", ""]])
    return [*kept, (f"{_INFO}/RECORD", text.getvalue().encode())]


def _somewhere(random: Random, content: bytes) -> int:
    return random.randint(0, len(content))


def _edited(random: Random, content: bytes) -> bytes:
    """A few edits: bytes flipped, words inserted, lines dropped, doubled or moved."""
    for _ in range(random.randint(1, 3)):
        at, lines = _somewhere(random, content), content.splitlines(keepends=True) or [b""]
        line = random.randrange(len(lines))
        word = random.choice(_WORDS)
        content = random.choice(
            (
                content[:at] + word + content[at:],
                content[:at] + word + content[at + len(word) :],
                content[:at] + random.randbytes(1) + content[at + 1 :],
                content[:at],
                b"".join(lines[:line] + lines[line + 1 :]),
                b"".join(lines[: line + 1] + lines[line:]),
                b"".join(random.sample(lines, len(lines))),
            )
        )
    return content


def flipped_bytes(random: Random, wheel: Path) -> bytes:
    content = bytearray(wheel.read_bytes())
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(content)


def truncated(random: Random, wheel: Path) -> bytes:
    content = wheel.read_bytes()
    return content[: _somewhere(random, content)]


def moved_bytes(random: Random, wheel: Path) -> bytes:
    """A piece left out, doubled, moved or zeroed, as after a bad copy."""
    content = wheel.read_bytes()
    start, end = sorted((_somewhere(random, content), _somewhere(random, content)))
    before, piece, after = content[:start], content[start:end], content[end:]
    return random.choice(
        (
            before + after,
            before + piece + piece + after,
            after + piece + before,
            before + bytes(len(piece)) + after,
            random.randbytes(100) + content,
            content + random.randbytes(100),
            content + content,
        )
    )


def zip_fields(random: Random, wheel: Path) -> bytes:
    """A wrong size, offset, checksum, flag, method or count in zip's own headers."""
    content = bytearray(wheel.read_bytes())
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        field = random.choice(_FIELDS)
        number = random.choice((*_NUMBERS, random.getrandbits(32)))
        starts = [at for at in range(len(content) - 3) if content[at : at + 4] == field.header]
        size = struct.calcsize(field.form)
        where = random.choice(starts) + field.offset
        content[where : where + size] = struct.pack(field.form, number % (1 << 8 * size))
    return bytes(content)


def swapped_entries(random: Random, wheel: Path) -> bytes:
    """Two files with swapped contents, or all files in another order, with RECORD or without."""
    entries = _entries(wheel)
    if random.random() < 0.3:
        return _zipped(random.sample(entries, len(entries)))
    one, two = random.sample(range(len(entries)), 2)
    (name, content), (other_name, other) = entries[one], entries[two]
    entries[one], entries[two] = (name, other), (other_name, content)
    return _zipped(_signed(entries) if random.random() < 0.5 else entries)


def twice(random: Random, wheel: Path) -> bytes:
    entries = _entries(wheel)
    name, content = random.choice(entries)
    entries.insert(random.randint(0, len(entries)), (name, random.choice((content, b"other"))))
    return _zipped(_signed(entries) if random.random() < 0.5 else entries)


def left_out(random: Random, wheel: Path) -> bytes:
    entries = _entries(wheel)
    entries.remove(random.choice(entries))
    return _zipped(_signed(entries) if random.random() < 0.5 else entries)


def odd_names(random: Random, wheel: Path) -> bytes:
    """A file with a hostile name, added or instead of another, in RECORD too."""
    entries = _entries(wheel)
    at, name = random.randrange(len(entries)), random.choice(_NAMES)
    content = b"" if name.endswith("/") else b"hostile"
    if random.random() < 0.7:
        entries.insert(at, (name, content))
    else:
        entries[at] = (name, entries[at][1])
    return _zipped(_signed(entries) if random.random() < 0.8 else entries)


def raw_names(random: Random, wheel: Path) -> bytes:
    """A name with changed bytes in both of its headers. They may be no valid text."""
    name = random.choice([name for name, _ in _entries(wheel)]).encode()
    other = bytearray(name)
    other[random.randrange(len(other))] = random.choice((0, 0x80, 0xFF, 0xE9, 0x2F, 0x5C, 0x0A))
    content = wheel.read_bytes().replace(name, bytes(other))
    utf_8 = random.choice((b"\0\0", b"\0\x08"))  # a flag
    return content.replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0" + utf_8)


def _edits_of(name: str) -> Mutation:
    def edit(random: Random, wheel: Path) -> bytes:
        entries = [
            (each, _edited(random, content) if each == f"{_INFO}/{name}" else content)
            for each, content in _entries(wheel)
        ]
        return _zipped(entries if name == "RECORD" else _signed(entries))

    return edit


def odd_library(random: Random, wheel: Path) -> bytes:
    """A libjax_common.so with a few wrong bytes, often in its headers, and a correct RECORD."""

    def broken(content: bytes) -> bytes:
        changed = bytearray(content)
        end = random.choice((64, 64, 1024, len(changed)))
        for _ in range(random.choice((1, 2, 8))):
            changed[random.randrange(end)] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        return bytes(
            changed[: random.choice((len(changed), len(changed), _somewhere(random, content)))]
        )

    entries = [
        (name, broken(content) if name == LIBRARY else content) for name, content in _entries(wheel)
    ]
    return _zipped(_signed(entries))


def odd_methods(random: Random, wheel: Path) -> bytes:
    """Another compression method: real, with wrong bytes, or only its number."""
    method = random.choice(_METHODS)
    if method in _METHODS[:4]:
        content = bytearray(_zipped(_entries(wheel), method))
        for _ in range(random.choice((0, 1, 4))):
            content[random.randrange(len(content) // 2)] ^= 0x55
        return bytes(content)
    packed = struct.pack("<H", method)
    content = wheel.read_bytes()
    return content.replace(b"PK\1\2\x14\3\x14\0\0\0\x08\0", b"PK\1\2\x14\3\x14\0\0\0" + packed)


def odd_kinds(random: Random, wheel: Path) -> bytes:
    """A file that is marked as a link, a folder, a device or nothing, or has an impossible date."""
    kinds = (stat.S_IFLNK, stat.S_IFDIR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFREG, 0)
    content = bytearray(wheel.read_bytes())
    starts = [at for at in range(len(content) - 3) if content[at : at + 4] == b"PK\1\2"]
    at = random.choice(starts)
    mode = random.choice(kinds) | random.getrandbits(12)
    content[at + 38 : at + 42] = struct.pack("<I", mode << 16 | random.choice((0, 0x10)))
    if random.random() < 0.5:
        content[at + 12 : at + 16] = random.choice((bytes(4), b"\xff" * 4, random.randbytes(4)))
    return bytes(content)


def bombs(random: Random, wheel: Path) -> bytes:
    """A file of very many zeros, added or instead of another, in RECORD or not."""
    entries = _entries(wheel)
    at, zeros = random.randrange(len(entries)), bytes(_BOMB)
    if random.random() < 0.5:
        entries[at] = (entries[at][0], zeros)
    else:
        entries.insert(at, ("jaxlib/bomb", zeros))
    return _zipped(_signed(entries) if random.random() < 0.8 else entries)


# The weight of each, of a thousand.
MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "flipped bytes": (flipped_bytes, 100),
    "truncated": (truncated, 50),
    "moved bytes": (moved_bytes, 60),
    "zip's fields": (zip_fields, 170),
    "swapped entries": (swapped_entries, 50),
    "an entry twice": (twice, 40),
    "an entry left out": (left_out, 30),
    "odd names": (odd_names, 100),
    "raw names": (raw_names, 50),
    "RECORD": (_edits_of("RECORD"), 100),
    "METADATA": (_edits_of("METADATA"), 60),
    "WHEEL": (_edits_of("WHEEL"), 60),
    "an odd library": (odd_library, 70),
    "odd methods": (odd_methods, 50),
    "odd kinds": (odd_kinds, 40),
    "bombs": (bombs, 10),
}


def mutated(random: Random, wheel: Path) -> tuple[str, bytes]:
    """A random mutation of a wheel, with its name."""
    weights = [weight for _, weight in MUTATIONS.values()]
    (name,) = random.choices(list(MUTATIONS), weights)
    return name, MUTATIONS[name][0](random, wheel)
