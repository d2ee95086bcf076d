"""The steps from a stock jaxlib to our wheel, and to environments with either.

Each opens a step of the display, and reuses what was made before.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from machine import environments
from machine.headers import headers
from machine.pythons import Interpreter, here_for
from machine.targets import Target
from paths import JAX_REQUIREMENTS, OUR_WHEELS, VENVS
from progress import Step
from wheels import finished_wheel, stock_wheel
from wheels.extensions import compile_extensions, compile_portable
from wheels.repack import repack
from wheels.seam import JAX, PJIT, Extensions
from wheels.stock_wheel import StockWheel
from wheels.trial import try_wheel


def fetched(step: Step, version: str, target: Target) -> Path:
    """The published jaxlib wheel of a release."""
    with step(f"Get jaxlib {version} for {target.label}"):
        return stock_wheel.download(version, target)


def finished_version(step: Step, wheel: Path, python: Interpreter) -> str:
    """Checks a finished wheel of ours. Returns the version of the jaxlib that it was made from."""
    with step(f"Check {wheel.name}") as report:
        return finished_wheel.check(wheel, python.target, report)


def unpacked(wheel: Path, folder: Path) -> Extensions:
    """Our two extensions, extracted from a finished wheel into a folder."""
    with zipfile.ZipFile(wheel) as file:
        return Extensions(*(Path(file.extract(name, folder)) for name in (JAX, PJIT)))


def compiled(step: Step, python: Interpreter) -> Extensions:
    """Our two extensions."""
    with step(f"Compile the C++ for {python.label}"):
        return compile_extensions(python)


def our_wheel(step: Step, source: Path, python: Interpreter) -> Path:
    """Our wheel for this machine, built in seconds with the system's compiler."""
    # First the check, so that bad input is refused before anything is compiled.
    stock = _checked(step, source, python.target)
    return _written(step, stock, compiled(step, python), python.target, OUR_WHEELS, python)


def packed_wheel(step: Step, source: Path, extensions: Extensions, python: Interpreter) -> Path:
    """The same from extensions that are compiled. Other threads can pack other wheels meanwhile."""
    stock = _checked(step, source, python.target)
    return _written(step, stock, extensions, python.target, OUR_WHEELS, python)


def portable_wheel(step: Step, source: Path, target: Target, out: Path) -> Path:
    """Our wheel for any Linux. It is tried if a Python that it runs on is installed here."""
    stock = _checked(step, source, target)
    with step(f"Compile the C++ for {target.label}, for any Linux"):
        extensions = compile_portable(target, headers(target))
    return _written(step, stock, extensions, target, out, here_for(target))


def _checked(step: Step, source: Path, target: Target) -> StockWheel:
    with step(f"Check {source.name}") as report:
        return stock_wheel.check(source, target, report)


def _written(
    step: Step,
    stock: StockWheel,
    extensions: Extensions,
    target: Target,
    out: Path,
    python: Interpreter | None,
) -> Path:
    def accept(wheel: Path) -> None:
        if python:
            try_wheel(wheel, python)

    with step(f"Write our wheel to {out}{', and try it' if python else ''}") as report:
        return repack(stock, extensions, target, out, report, accept)


def jax_environment(
    step: Step,
    kind: str,
    jaxlib: Path,
    python: Interpreter,
    more: Sequence[str | Path] = (),
) -> Path:
    """The Python of an environment with a jaxlib wheel, the matching jax, and more."""
    version = stock_wheel.version_of(jaxlib).public
    with step(f"Make the environment with jax {version} and jaxlib, {kind}"):
        directory = VENVS / f"{kind}-{version}-{python.label}"
        needed = [f"jax=={version}", jaxlib, JAX_REQUIREMENTS, *more]
        return environments.environment(directory, python, needed)
