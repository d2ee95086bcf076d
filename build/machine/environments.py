"""Virtual environments that are made once and made again when what should be in them changes.

Standard library only: build.py makes the environment that it runs in with this too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from machine.pythons import Interpreter, clean_environment
from paths import LOGS
from refusal import Refusal, refusing_os_errors

_STAMP = "made-from.sha256"


def environment(directory: Path, python: Interpreter, requirements: Sequence[str | Path]) -> Path:
    """Makes a virtual environment, or finds it as it should be.

    Args:
      directory: where it is to be; whatever is there and differs is deleted.
      python: the Python to make it from.
      requirements: what pip is to install. A Path is a wheel, or a requirements file where it
        ends in .txt; its content counts, not its date.

    Returns:
      The path of the environment's Python.

    Raises:
      Refusal: pip could not install them, or the folder cannot be written.
    """
    with refusing_os_errors(f"make the virtual environment {directory}"), locked(directory):
        inside = directory / "bin" / "python"
        if is_made(directory, python, requirements):
            return inside
        shutil.rmtree(directory, ignore_errors=True)
        making = [str(python.base), "-m", "venv", str(directory)]
        _run(making, f"making {directory}", f"venv-{directory.name}")
        pip(inside, ["install", *_arguments(requirements)], f"pip-{directory.name}")
        (directory / _STAMP).write_text(_digest(python, requirements))
        return inside


def is_made(directory: Path, python: Interpreter, requirements: Sequence[str | Path]) -> bool:
    """Whether an environment is there as `environment` would make it."""
    stamp = directory / _STAMP
    is_there = stamp.is_file() and (directory / "bin" / "python").exists()
    return is_there and stamp.read_text() == _digest(python, requirements)


def delete(directory: Path) -> None:
    """Deletes a virtual environment.

    Raises:
      Refusal: the folder cannot be deleted.
    """
    with refusing_os_errors(f"delete {directory}"), locked(directory):
        shutil.rmtree(directory)


def pip(python: Path, arguments: Sequence[str], log_name: str) -> None:
    """Runs a Python's pip, its output kept in a log.

    Raises:
      Refusal: it failed, with pip's own last word.
    """
    options = ["--disable-pip-version-check", "--no-input"]
    command = [str(python), "-m", "pip", *arguments, *options]
    _run(command, f"pip {arguments[0]}", log_name)


def _run(command: Sequence[str], what: str, log_name: str) -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{log_name}.log"
    # Another run of build.py may be writing a log of that name.
    part = log.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as output:
        done = subprocess.run(
            command,
            env=clean_environment() | {"PYTHONNOUSERSITE": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    last_word = _last_word(part)
    part.replace(log)
    if done.returncode != 0:
        raise Refusal(f"{what} failed: {last_word} (all of it in {log})")


def _last_word(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[-1]


def _arguments(requirements: Sequence[str | Path]) -> list[str]:
    arguments = []
    for requirement in requirements:
        is_list = isinstance(requirement, Path) and requirement.suffix == ".txt"
        arguments += ["--requirement", str(requirement)] if is_list else [str(requirement)]
    return arguments


def _digest(python: Interpreter, requirements: Sequence[str | Path]) -> str:
    digest = hashlib.sha256(f"{python.base} {python.version} {python.abi}".encode())
    for requirement in requirements:
        is_file = isinstance(requirement, Path)
        digest.update(requirement.read_bytes() if is_file else requirement.encode())
        digest.update(b"\0")
    return digest.hexdigest()


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds off another run of build.py that wants the same folder."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(directory.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
