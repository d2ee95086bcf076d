"""Finds Pythons on this machine, and examines them. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from machine.targets import MACHINES, Target
from refusal import Refusal

OLDEST = (3, 10)
NEWER = ((3, 14), (3, 13), (3, 12))  # those that the newest jax may need, newest first

_PROBE = """
import importlib.util, json, os, platform, sys, sysconfig
print(json.dumps({
    "executable": sys.executable,
    "base": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
    "implementation": sys.implementation.name,
    "version": list(sys.version_info[:2]),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "system": platform.system(),
    "machine": platform.machine(),
    "include": sysconfig.get_paths()["include"],
    "has_headers": os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")),
    "has_ensurepip": importlib.util.find_spec("ensurepip") is not None,
}))
"""


class Interpreter(NamedTuple):
    """A CPython on Linux, x86_64 or aarch64."""

    path: Path
    base: Path  # the same, or the Python that its virtual environment was made from
    version: tuple[int, int]
    free_threaded: bool
    machine: str
    include: Path
    has_headers: bool
    has_ensurepip: bool

    @property
    def target(self) -> Target:
        """What to build for this Python."""
        return Target(self.version, self.free_threaded, self.machine)

    @property
    def abi(self) -> str:
        """The wheel tag of its binary interface, such as cp311 or cp314t."""
        return self.target.abi

    @property
    def label(self) -> str:
        """The name of folders for this Python, such as cp311-x86_64."""
        return self.target.label


def clean_environment() -> dict[str, str]:
    """This process's environment, without the variables that change how Python or jax behaves."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "JAX", "XLA_", "__PYVENV", "VIRTUAL_ENV"))
    }


def examine(python: str | Path) -> Interpreter:
    """Runs a Python, given as a path or a name on PATH, to learn what it is.

    Raises:
      Refusal: it is missing, does not run, or is not a CPython that jaxlib has wheels for.
    """
    found = shutil.which(str(python))
    if found is None:
        raise Refusal(f"{python}: no such Python; give --python the path of one")
    facts = _probe(found)
    version = (facts["version"][0], facts["version"][1])
    if facts["implementation"] != "cpython" or version < OLDEST:
        raise Refusal(
            f"{python}: is {facts['implementation']} {version[0]}.{version[1]}; "
            f"give --python a CPython {OLDEST[0]}.{OLDEST[1]} or later"
        )
    if facts["system"] != "Linux" or facts["machine"] not in MACHINES:
        raise Refusal(
            f"{python}: runs on {facts['system']} {facts['machine']}; "
            "only Linux on x86_64 or aarch64 is supported"
        )
    return Interpreter(
        path=Path(facts["executable"]),
        base=Path(facts["base"]),
        version=version,
        free_threaded=facts["free_threaded"],
        machine=facts["machine"],
        include=Path(facts["include"]),
        has_headers=facts["has_headers"],
        has_ensurepip=facts["has_ensurepip"],
    )


def found(versions: Sequence[tuple[int, int]], *, to_build: bool = True) -> Iterator[Interpreter]:
    """The Pythons of these versions that are on PATH or installed by pyenv, in that order.

    Args:
      to_build: whether to leave out those without headers.
    """
    for version in versions:
        for python in here(version):
            fits = python.has_ensurepip and (python.has_headers or not to_build)
            if fits and not python.free_threaded:
                yield python
                break


def here(version: tuple[int, int]) -> Iterator[Interpreter]:
    """The Pythons of a version that are on PATH or pyenv's, including free-threaded ones."""
    for candidate in _candidates("{}.{}".format(*version)):
        # pyenv puts a program of every name on PATH; for most versions it only prints an error.
        with contextlib.suppress(Refusal):
            python = examine(candidate)
            if python.version == version:
                yield python


def here_for(target: Target) -> Interpreter | None:
    """A Python on this machine that can run what is built for a target, or None."""
    return next((python for python in here(target.version) if python.target == target), None)


def _candidates(version: str) -> list[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = pyenv.glob(f"{version}.*/bin/python{version}")
    newest_first = sorted(installed, key=lambda path: _numbers(path.parts[-3]), reverse=True)
    without_gil = pyenv.glob(f"{version}.*t/bin/python{version}t")
    names = [f"python{version}", f"python{version}t"]
    return [*names, *map(str, newest_first), *map(str, without_gil)]


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _probe(executable: str) -> dict:
    try:
        answer = subprocess.run(
            [executable, "-c", _PROBE],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Refusal(f"{executable}: does not run as a Python; give --python another") from error
