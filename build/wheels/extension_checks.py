"""Checks our two extensions as they were linked, before they go into a wheel or an overlay.

A library that lacks its PyInit function, or is for another machine, links and goes into a wheel
without an error. Then the user's import falls back to stock's pjit, or fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from refusal import Refusal, refusing_os_errors
from wheels.seam import BROKEN_ELF, JAX, LIBRARY, PJIT, SYMBOL, Extensions

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_SYSTEM = re.compile(
    r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-[a-z0-9_-]+\.so\.\d+"
)
_COMMON = Path(LIBRARY).name
_OF_PYTHON = re.compile(r"_?Py[A-Z_]")


class Shape(NamedTuple):
    """What the dynamic table of an extension says."""

    machine: str
    exports: set[str]
    unversioned: set[str]  # undefined symbols that no version binds to a library
    needed: set[str]  # the SONAMEs of the libraries that it needs
    run_path: list[str]


class _Wanted(NamedTuple):
    export: str
    unversioned: re.Pattern[str]
    needed: set[str]  # besides the system's libraries


_WANTED = {
    JAX: _Wanted("PyInit__jax", re.compile(rf"{_OF_PYTHON.pattern}|{SYMBOL}$"), {_COMMON}),
    PJIT: _Wanted("PyInit__pjit", _OF_PYTHON, set()),
}


def check_extensions(extensions: Extensions, machine: str) -> None:
    """Checks both extensions: their machine, their one export, and what they need of others.

    Raises:
      Refusal: one of them was built wrong. No other input would change that.
    """
    for path, (name, wanted) in zip(extensions, _WANTED.items()):
        for fault in _faults(_shape(path), wanted, machine):
            raise Refusal(f"{path}: {fault}; no {Path(name).name} like that goes into a wheel")


def _faults(shape: Shape, wanted: _Wanted, machine: str) -> Iterator[str]:
    if shape.machine != machine:
        yield f"is for {shape.machine}, not for {machine}"
    if wanted.export not in shape.exports:
        yield f"does not export {wanted.export}"
    if more := sorted(shape.exports - {wanted.export}):
        yield f"exports {', '.join(more[:3])} beside {wanted.export}"
    if foreign := sorted(each for each in shape.needed if not _SYSTEM.fullmatch(each)):
        if set(foreign) != wanted.needed:
            yield f"needs {' and '.join(foreign)}, which a user may not have"
    elif wanted.needed:
        yield f"does not need {_COMMON}, where {SYMBOL} is"
    if wanted.needed and not {"$ORIGIN", "$ORIGIN/"} & set(shape.run_path):
        yield f"does not look for {_COMMON} beside itself"
    if unknown := sorted(each for each in shape.unversioned if not wanted.unversioned.match(each)):
        yield f"calls {unknown[0]}, which is in no library that it needs"


def _shape(path: Path) -> Shape:
    try:
        with refusing_os_errors(f"read {path}"), path.open("rb") as file:
            elf = ELFFile(file)
            (dynamic,) = elf.iter_segments("PT_DYNAMIC")
            built_for = _MACHINES.get(elf["e_machine"], str(elf["e_machine"]))
            return Shape(built_for, *_symbols(elf, dynamic), *_names(dynamic))
    except BROKEN_ELF as error:
        raise Refusal(
            f"{path}: is not a readable shared library; delete .build and try again"
        ) from error


def _symbols(elf: ELFFile, dynamic: DynamicSegment) -> tuple[set[str], set[str]]:
    """The exported symbols, and the undefined ones that no version binds to a library."""
    versions = elf.get_section_by_name(".gnu.version")
    exports, unversioned = set(), set()
    for index, symbol in enumerate(dynamic.iter_symbols()):
        is_global = symbol["st_info"]["bind"] != "STB_LOCAL"
        if not (symbol.name and is_global and symbol["st_info"]["type"] != "STT_SECTION"):
            continue
        if symbol["st_shndx"] != "SHN_UNDEF":
            exports.add(symbol.name)
        elif symbol["st_info"]["bind"] == "STB_GLOBAL":
            version = versions.get_symbol(index)["ndx"] if versions else "VER_NDX_GLOBAL"
            if version in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL"):
                unversioned.add(symbol.name)
    return exports, unversioned


def _names(dynamic: DynamicSegment) -> tuple[set[str], list[str]]:
    needed, run_path = set(), []
    for tag in dynamic.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED":
            needed.add(tag.needed)
        elif tag.entry.d_tag == "DT_RUNPATH":
            run_path += tag.runpath.split(":")
        elif tag.entry.d_tag == "DT_RPATH":
            run_path += tag.rpath.split(":")
    return needed, run_path
