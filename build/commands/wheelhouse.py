"""Makes our wheels of several jaxlib releases, Pythons and machines, with an index of them."""

from __future__ import annotations

import argparse
import platform
import sys

import arguments
from machine.pythons import Interpreter
from machine.targets import MACHINES, target
from paths import ROOT

HELP = "make our wheels for many Pythons and machines, and an index of them"
PYTHONS = ("cp311", "cp312", "cp313", "cp314", "cp313t", "cp314t")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(python=sys.executable)
    this = [platform.machine()]
    for name, dest, metavar, default, check in (
        ("--jaxlib", "versions", "VERSION", [arguments.JAXLIB], {"type": arguments.version}),
        ("--python", "tags", "TAG", list(PYTHONS), {"type": arguments.tag}),
        ("--machine", "machines", "MACHINE", this, {"choices": MACHINES}),
    ):
        shown = f"({' '.join(default)})"
        parser.add_argument(
            name, dest=dest, nargs="+", metavar=metavar, default=default, help=shown, **check
        )
    arguments.out(parser, ROOT / "dist" / "wheelhouse")


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from wheels.wheelhouse import wheelhouse

    wanted = [target(tag, machine) for machine in options.machines for tag in options.tags]
    return wheelhouse(options.versions, list(dict.fromkeys(wanted)), options.out)
