"""Installs the Debian packages that the build needs, if what they contain is missing.

A Bazel, Abseil or Python that was installed in another way is as good. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from machine.pythons import Interpreter
from refusal import Refusal

_DISTRIBUTION_PREFIX = Path("/usr/bin")
_FOUND_BY: dict[str, str | Path] = {  # a program on PATH, or a folder
    "bazel-bootstrap": "bazel",
    "g++": "g++",
    "libabsl-dev": Path("/usr/include/absl"),
    "googletest": Path("/usr/src/googletest"),
    "libbenchmark-dev": Path("/usr/include/benchmark"),
    "valgrind": "valgrind",
}
_ALWAYS = {"bazel-bootstrap", "g++", "libabsl-dev", "googletest"}


def missing(
    pythons: Iterable[Interpreter], more: Collection[str] = (), *, builds: bool = True
) -> list[str]:
    """The names of the packages to install, sorted.

    Args:
      pythons: those that need ensurepip, and headers if anything is built.
      more: packages of `_FOUND_BY` that are needed beside those that every build needs.

    Raises:
      Refusal: a Python that is not the distribution's lacks its headers or ensurepip, which no
        package can add.
    """
    needed = (_ALWAYS if builds else set()) | set(more)
    names = {name for name in needed if not _is_there(_FOUND_BY[name])}
    for python in pythons:
        names |= _missing_of_python(python, builds)
    return sorted(names)


def _is_there(what: str | Path) -> bool:
    return what.is_dir() if isinstance(what, Path) else shutil.which(what) is not None


def _missing_of_python(python: Interpreter, builds: bool) -> set[str]:
    lacking = {}
    if builds and not python.has_headers:
        lacking["dev"] = "Python.h"
    if not python.has_ensurepip:
        lacking["venv"] = "ensurepip"
    if lacking and python.base.parent != _DISTRIBUTION_PREFIX:
        raise Refusal(
            f"{python.path}: lacks {' and '.join(lacking.values())}; "
            "install them, or give --python another Python"
        )
    return {f"python{python.version[0]}.{python.version[1]}-{kind}" for kind in lacking}


def install(names: list[str]) -> None:
    """Names the packages, and installs them with apt-get, as root or through sudo.

    Raises:
      Refusal: this user is not root and sudo asks for a password, or apt-get fails; the message
        has the command to run by hand.
    """
    prefix = _root_prefix()
    command = f"apt-get update && apt-get install --yes --no-install-recommends {' '.join(names)}"
    if shutil.which("apt-get") is None:
        raise Refusal(f"this machine lacks what is in the Debian packages {' '.join(names)}")
    if prefix is None:
        raise Refusal(f"system packages are missing; run: sudo sh -c '{command}'")
    print(f"Installing system packages: {' '.join(names)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", command],
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode != 0:
        raise Refusal(f"installing system packages failed; as root, try: {command}")


def _root_prefix() -> list[str] | None:
    """What to put before a command so that it runs as root, or None if this user may not."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None:
        return None
    asks = subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode
    return [sudo, "-n"] if asks == 0 else None
