"""Our wheel for a system that cannot build one: `build.py wheelhouse` makes it here."""

from __future__ import annotations

import sys
from pathlib import Path

from arguments import JAXLIB
from paths import ROOT, STATE
from refusal import Refusal
from systems.output import told

FOLDER = STATE / "systems-wheelhouse"


def made(python: str, machine: str) -> Path:
    """The wheel for a CPython of this version on this machine.

    Raises:
      Refusal: it could not be built.
    """
    tag = "cp" + "".join(python.split(".")[:2])
    command = [sys.executable, str(ROOT / "build" / "build.py"), "wheelhouse"]
    wanted = ["--jaxlib", JAXLIB, "--python", tag, "--machine", machine, "--out", str(FOLDER)]
    told([*command, *wanted])
    found = sorted(FOLDER.rglob(f"jaxlib-{JAXLIB}+*-{tag}-{tag}-*_{machine}.whl"))
    if not found:
        raise Refusal(f"{FOLDER}: has no wheel for {tag} on {machine}; see what wheelhouse said")
    return found[0]


def origin(wheel: Path) -> str:
    """How a row names this wheel."""
    return "wheelhouse, " + wheel.stem.split("-")[-1]
