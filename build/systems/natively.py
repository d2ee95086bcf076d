"""Runs demo and all tests on another Python of this machine, on PATH or pyenv's."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

from arguments import JAXLIB
from machine import pythons
from paths import ROOT
from refusal import Refusal
from systems import results
from systems.matrix import Row
from systems.output import told


def tried(version: tuple[int, int]) -> Iterator[Row]:
    """Yields two rows: the demo, and all tests.

    Raises:
      Refusal: this machine does not have it.
    """
    python = next(pythons.found([version]), None)
    if python is None:
        name = "{}.{}".format(*version)
        raise Refusal(f"no CPython {name} with headers on PATH or of pyenv's; install one")

    def build(command: str) -> str:
        program = [sys.executable, str(ROOT / "build" / "build.py"), command]
        return told([*program, "--python", str(python.path)], fails=True)

    exact = told([str(python.path), "--version"]).split()[-1]
    system = platform.freedesktop_os_release()
    name = f"{system['NAME'].split()[0]} {system.get('VERSION_ID', '')}".strip()
    row = Row(name, python.machine, exact, JAXLIB, "built there", "", "")
    yield row._replace(check="demo", result=results.of_demo(build("demo")))
    yield row._replace(check="all tests", result=results.of_tests(build("test")))
