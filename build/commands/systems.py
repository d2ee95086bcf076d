"""Tries the wheel on other systems, machines and Pythons, and keeps a page of the results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import arguments
from paths import STATE
from refusal import Refusal
from systems import aarch64, bare, debian, every_wheel, free_threaded, natively
from systems.matrix import Row, record

HELP = "try the wheel on other systems, machines and Pythons"

_SYSTEMS: dict[str, Callable[[Path], Iterable[Row]]] = {
    "cp312": lambda folder: natively.tried((3, 12)),
    "cp313": lambda folder: natively.tried((3, 13)),
    "debian-13": lambda folder: debian.tried(folder, "trixie", "Debian 13"),
    "debian-forky": lambda folder: debian.tried(folder, "forky", "Debian forky"),
    "bare": bare.tried,
    "free-threaded": free_threaded.tried,
    "aarch64": aarch64.tried,
    "every-wheel": lambda folder: every_wheel.tried(),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "systems",
        nargs="*",
        metavar="SYSTEM",
        default=list(_SYSTEMS),
        help=f"which of {' '.join(_SYSTEMS)} (all)",
    )
    parser.add_argument(
        "--folder",
        type=arguments.path,
        default=STATE / "systems",
        metavar="DIR",
        help="where the systems are made, 1 to 5 GB each (.build/systems)",
    )


def run(options: argparse.Namespace) -> int:
    unknown = [name for name in options.systems if name not in _SYSTEMS]
    if unknown:
        raise Refusal(f"{unknown[0]}: is not a system; give one of {', '.join(_SYSTEMS)}")
    went_well = [_try(name, options.folder.resolve()) for name in options.systems]
    return 0 if all(went_well) else 1


def _try(name: str, folder: Path) -> bool:
    """Tries one system, records the results, and returns whether all of them are good."""
    went_well = True
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        for row in _SYSTEMS[name](folder):
            record(row)
            print(f"{name}: {row.python}, {row.check}: {row.result}", flush=True)
            went_well = went_well and row.went_well
    except Refusal as refusal:
        # The other systems still run. This one gets no row.
        print(f"{name}: {refusal}", flush=True)
        return False
    return went_well
