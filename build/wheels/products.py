"""From a stock jaxlib to our wheel, and to environments with the one and the other.

Each of these opens a step of the display, and finds what was made before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from machine import environments
from machine.pythons import Interpreter
from paths import VENVS
from progress import Step
from wheels import finished_wheel, stock_wheel
from wheels.extensions import compile_extensions
from wheels.repack import repack
from wheels.seam import Extensions
from wheels.trial import try_wheel


def fetched(step: Step, version: str, python: Interpreter) -> Path:
    """The published jaxlib wheel of a release."""
    with step(f"Get jaxlib {version}"):
        return stock_wheel.download(version, python)


def finished_version(step: Step, wheel: Path, python: Interpreter) -> str:
    """The version of the jaxlib that a finished wheel of ours was made of. Checks the wheel."""
    with step(f"Check {wheel.name}") as report:
        return finished_wheel.check(wheel, python, report)


def compiled(step: Step, python: Interpreter) -> Extensions:
    """Our two extensions."""
    with step(f"Compile the C++ for {python.abi}"):
        return compile_extensions(python)


def our_wheel(step: Step, source: Path, python: Interpreter, out: Path) -> Path:
    """Our wheel, made of a stock one."""
    # First the check, so that bad input is refused before anything is compiled.
    with step(f"Check {source.name}") as report:
        stock = stock_wheel.check(source, python, report)
    extensions = compiled(step, python)
    with step(f"Write our wheel to {out}, and try it") as report:
        return repack(stock, extensions, python, out, report, lambda made: try_wheel(made, python))


def jax_environment(
    step: Step,
    kind: str,
    jaxlib: Path,
    python: Interpreter,
    more: Sequence[str | Path] = (),
) -> Path:
    """The Python of an environment with a jaxlib wheel, the jax that goes with it, and more."""
    version = stock_wheel.version_of(jaxlib).public
    with step(f"Make the environment with jax {version} and jaxlib, {kind}"):
        directory = VENVS / f"{kind}-{version}-{python.abi}"
        return environments.environment(directory, python, [f"jax=={version}", jaxlib, *more])
