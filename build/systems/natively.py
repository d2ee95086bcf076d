"""The other Pythons that this machine has, on PATH or pyenv's: all tests of build.py."""

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
    """The row of one Python.

    Raises:
      Refusal: this machine does not have it.
    """
    python = next(pythons.found([version]), None)
    if python is None:
        name = "{}.{}".format(*version)
        raise Refusal(f"no CPython {name} with headers on PATH or of pyenv's; install one")
    command = [sys.executable, str(ROOT / "build" / "build.py"), "test", "--python"]
    said = told([*command, str(python.path)], fails=True)
    exact = told([str(python.path), "--version"]).split()[-1]
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    row = Row(system, python.machine, exact, JAXLIB, "built there", "all tests", "")
    yield row._replace(result=results.of_tests(said))
