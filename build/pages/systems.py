"""The README's table of the checks on each CPython and machine, from docs/systems.json."""

from __future__ import annotations

import re

from machine.targets import MACHINES
from markdown import table
from systems import every_wheel, matrix

# `.ci/run` does this, and so leaves no row.
_BY_CI = {("3.11", "x86_64"): {"Debian 12": ["all tests"]}}


def tried() -> str:
    """A row for each CPython: the checks by system. Without any, what was done with its wheel."""
    ran: dict[tuple[str, str], dict[str, list[str]]] = {
        key: {system: list(checks) for system, checks in of.items()} for key, of in _BY_CI.items()
    }
    wheels = {}
    for row in matrix.read():
        key = (python_of(row.python), row.machine.partition(",")[0])
        if row.check == every_wheel.CHECK:
            wheels[key] = row.result
        else:
            check = row.check.partition(",")[0] if row.went_well else f"**{row.check}: failed**"
            system = row.system + ", emulated" * ("emulated" in row.machine)
            ran.setdefault(key, {}).setdefault(system, []).append(check)
    pythons = sorted({python for python, _ in {*ran, *wheels}}, key=_by_number)

    def cell(python: str, machine: str) -> str:
        of = ran.get((python, machine), {})
        checks = "; ".join(f"{system}: {', '.join(checks)}" for system, checks in of.items())
        return checks or wheels.get((python, machine), "")

    rows = [[python, *(cell(python, machine) for machine in MACHINES)] for python in pythons]
    return table(["CPython", *MACHINES], rows)


def python_of(python: str) -> str:
    """The name of a row's Python: 3.13t of `cp313t` and of `3.13.5, no GIL`."""
    tag = re.fullmatch(r"cp3(\d+)(t?)", python)
    if tag:
        return f"3.{tag[1]}{tag[2]}"
    return ".".join(python.split(",")[0].split(".")[:2]) + "t" * python.endswith("no GIL")


def _by_number(python: str) -> tuple[int, str]:
    return int(re.findall(r"\d+", python)[1]), python
