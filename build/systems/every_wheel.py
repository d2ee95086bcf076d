"""Builds a wheel for every CPython and machine that the release has a stock wheel for.

The wheelhouse checks their libraries. If this machine has the Python, the wheel is also installed,
and must say that the rule is on. The rows of the others say "built only".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from arguments import JAXLIB
from commands.wheelhouse import PYTHONS
from machine.targets import MACHINES
from paths import ROOT
from systems import wheels
from systems.matrix import Row
from systems.output import told

CHECK = "its libraries"
_LINE = re.compile(
    r"^\s*(?P<jaxlib>\d[\w.]*)\s+(?P<python>cp3\w+)\s+(?P<machine>\w+)\s+\d+"
    r"\s+(?P<remark>tried|built only)\s+(?P<wheel>\S+\.whl)\s*$",
    re.MULTILINE,
)
_RESULTS = {"tried": "installed here: the rule is on", "built only": "built only"}


def tried() -> Iterator[Row]:
    """Yields a row for each wheel."""
    command = [sys.executable, str(ROOT / "build" / "build.py"), "wheelhouse", "--jaxlib", JAXLIB]
    wanted = ["--python", *PYTHONS, "--machine", *MACHINES, "--out", str(wheels.FOLDER)]
    yield from rows(told([*command, *wanted]))


def rows(said: str) -> list[Row]:
    """The rows for the output of `build.py wheelhouse`."""
    return [
        Row(
            system="any, by its tag",
            machine=line["machine"],
            python=line["python"],
            jaxlib=line["jaxlib"],
            wheel=wheels.origin(Path(line["wheel"])),
            check=CHECK,
            result=_RESULTS[line["remark"]],
        )
        for line in _LINE.finditer(said)
    ]
