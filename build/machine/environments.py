"""Virtual environments, made once and made again when their requirements change.

`uv` makes them: it takes seconds where pip takes half a minute, and links files instead of copying
them. uv comes as a wheel, so pip makes the first environment, in which build.py itself runs. This
module has to work before that environment exists: it uses the standard library only, except to
find uv. That is also why the lock calls flock, and does not use the package filelock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from machine.pythons import Interpreter, clean_environment
from machine.targets import Target
from paths import LOGS, STATE
from refusal import Refusal, refusing_os_errors

_STAMP = "made-from.sha256"
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_GLIBCS = range(45, 16, -1)  # minor versions that a wheel may need, newest first
_ERRORS = ("ERROR:", "error:")  # pip's, uv's
_FINDING = threading.Lock()  # uv asks sysconfig, where two threads must not be the first


def install_from(folder: Path) -> None:
    """From now on, installs everything from the wheels in a folder, without a network.

    Raises:
      Refusal: the folder has no wheel, or pip would read its path as several paths.
    """
    whole = folder.resolve()
    if not any(whole.glob("*.whl")):
        raise Refusal(f"{folder}: has no wheel; give --find-links the folder of pip download")
    if len(str(whole).split()) > 1:
        raise Refusal(f"{whole}: pip reads a path with a space as two; move the folder")
    os.environ.update(
        PIP_NO_INDEX="1", PIP_FIND_LINKS=str(whole), UV_OFFLINE="1", UV_FIND_LINKS=str(whole)
    )


def tools(directory: Path, python: Interpreter, requirements: Path) -> Path:
    """Makes the environment that build.py runs in, with pip. `environment` makes all others."""

    def fill() -> None:
        inside = str(directory / "bin" / "python")
        _run([str(python.base), "-m", "venv", str(directory)], "making it", _log(directory))
        install = [inside, *_PIP, "install", "--requirement", str(requirements)]
        _run(install, "pip install", _log(directory))

    return _made(directory, python, [requirements], fill)


def environment(
    directory: Path,
    python: Interpreter,
    requirements: Sequence[str | Path],
    *,
    cached: bool = True,
) -> Path:
    """Makes a virtual environment, unless it is up to date.

    Args:
      directory: where to make it; an environment there that differs is deleted.
      python: the Python to make it from.
      requirements: what to install. A Path is a wheel, or a requirements file if it ends in .txt.
        A file with other content makes another environment, one with another date does not.
      cached: whether uv keeps what it unpacks, for the next environment.

    Returns:
      The path of the environment's Python.

    Raises:
      Refusal: the requirements could not be installed, or the folder cannot be written.
    """

    def fill() -> None:
        _uv(["venv", "--quiet", "--python", str(python.base), str(directory)], _log(directory))
        options = ["--python", str(directory / "bin" / "python")]
        options += [] if cached else ["--no-cache"]
        # The newest numpy may have no wheel, and takes minutes to compile. An older one has.
        options += ["--only-binary=:all:"] if python.free_threaded else []
        _uv(["pip", "install", *options, *_arguments(requirements)], _log(directory))

    return _made(directory, python, requirements, fill)


def is_made(directory: Path, python: Interpreter, requirements: Sequence[str | Path]) -> bool:
    """Whether an environment is up to date, so that `environment` would keep it."""
    stamp = directory / _STAMP
    is_there = stamp.is_file() and (directory / "bin" / "python").exists()
    return is_there and stamp.read_text() == _digest(python, requirements)


def delete(directory: Path) -> None:
    """Deletes a virtual environment, and the jaxlib in uv's cache.

    Raises:
      Refusal: the folder cannot be deleted.
    """
    with refusing_os_errors(f"delete {directory}"), locked(directory):
        shutil.rmtree(directory)
    _uv(["cache", "clean", "--quiet", "jaxlib"], "uv-cache")


def download(requirement: str, target: Target, folder: Path) -> None:
    """Downloads the wheel of one package for a target, with pip: uv does not download wheels.

    Raises:
      Refusal: pip failed; the message ends with what pip said.
    """
    platforms = [f"manylinux_2_{minor}_{target.machine}" for minor in _GLIBCS]
    platforms += [f"manylinux2014_{target.machine}", f"linux_{target.machine}"]
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--dest", str(folder)]
    options += ["--implementation=cp", "--python-version={}.{}".format(*target.version)]
    options += [f"--abi={target.abi}", *(f"--platform={each}" for each in platforms)]
    command = [sys.executable, *_PIP, "download", requirement, *options]
    _run(command, "pip download", f"download-{target.label}")


def resolved(requirement: str, python: Interpreter) -> list[str]:
    """What would be installed for a requirement, as NAME==VERSION.

    Raises:
      Refusal: no release of it supports this Python.
    """
    log = f"resolve-{python.label}"
    command = ["pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--only-binary=:all:", "--python", str(python.base), "-"]
    _uv(command, log, stdin=requirement)
    return [line for line in _path(log).read_text().splitlines() if "==" in line]


def _made(
    directory: Path,
    python: Interpreter,
    requirements: Sequence[str | Path],
    fill: Callable[[], None],
) -> Path:
    with refusing_os_errors(f"make the virtual environment {directory}"), locked(directory):
        if not is_made(directory, python, requirements):
            shutil.rmtree(directory, ignore_errors=True)
            fill()
            (directory / _STAMP).write_text(_digest(python, requirements))
    return directory / "bin" / "python"


def _uv(arguments: Sequence[str], log_name: str, stdin: str = "") -> None:
    import uv

    words = [word for word in arguments[:2] if word.isalpha()]
    with _FINDING:
        program = uv.find_uv_bin()
    _run([program, *arguments], " ".join(["uv", *words]), log_name, stdin)


def _settings() -> dict[str, str]:
    """The environment of pip and uv. The user's own settings of uv take precedence."""
    defaults = {
        "UV_CACHE_DIR": str(STATE / "uv"),  # on one file system with the environments, for links
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "1",  # as pip does
    }
    return defaults | clean_environment() | {"PYTHONNOUSERSITE": "1"}


def _run(command: Sequence[str], what: str, log_name: str, stdin: str = "") -> None:
    log = _path(log_name)
    log.parent.mkdir(parents=True, exist_ok=True)
    # Another run of build.py, or another thread, may be writing a log of that name.
    part = log.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
    with part.open("wb") as output:
        done = subprocess.run(
            command,
            env=_settings(),
            input=stdin.encode(),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    last_word = _last_word(part)
    part.replace(log)
    if done.returncode != 0:
        raise Refusal(f"{what} failed: {last_word} (all of it in {log})")


def _log(directory: Path) -> str:
    return f"environment-{directory.name}"


def _path(log_name: str) -> Path:
    return LOGS / f"{log_name}.log"


def _last_word(log: Path) -> str:
    """The error in a log, with the causes that uv gives below it, or the last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [index for index, line in enumerate(lines) if line.startswith(_ERRORS)]
    if not errors:
        return (lines or ["it said nothing"])[-1]
    first = errors[-1]
    causes = [line for line in lines[first + 1 :] if line.startswith("cause:")]
    return "; ".join([lines[first], *causes])


def _arguments(requirements: Sequence[str | Path]) -> list[str]:
    arguments = []
    for requirement in requirements:
        is_list = isinstance(requirement, Path) and requirement.suffix == ".txt"
        arguments += ["--requirement", str(requirement)] if is_list else [str(requirement)]
    return arguments


def _digest(python: Interpreter, requirements: Sequence[str | Path]) -> str:
    digest = hashlib.sha256(f"{python.base} {python.version} {python.label}".encode())
    for requirement in requirements:
        is_file = isinstance(requirement, Path)
        digest.update(requirement.read_bytes() if is_file else requirement.encode())
        digest.update(b"\0")
    return digest.hexdigest()


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Locks a folder. If another build.py uses it, says so and waits."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(directory.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Waiting for another build.py that uses {directory} ...", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
