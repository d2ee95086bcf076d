"""The two commands that make one thing: `build.py wheel` and `build.py overlay`."""

from __future__ import annotations

import shlex
from pathlib import Path

import overlay
import products
from progress import steps
from pythons import Interpreter


def make_wheel(file: Path | None, version: str, python: Interpreter, out: Path) -> None:
    """Makes our wheel of a wheel that is here, or else of a release, and prints its path.

    Raises:
      Refusal: it cannot be made.
    """
    with steps() as step:
        source = file or products.fetched(step, version, python)
        wheel = products.our_wheel(step, source, python, out)
    print(wheel)


def make_overlay(site_packages: Path, python: Interpreter, out: Path) -> None:
    """Makes an overlay for an installed jaxlib, and prints how to use it.

    Raises:
      Refusal: it cannot be made.
    """
    overlay.check(site_packages, out, python)
    with steps() as step:
        overlay.overlay(site_packages, products.compiled(step, python), out)
    print(f"PYTHONPATH={shlex.quote(str(out.resolve()))}")
