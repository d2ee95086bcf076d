"""Runs demo and all tests on another release of Debian, from a fresh system."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from arguments import JAXLIB
from systems import chroot, results
from systems.matrix import Row


def tried(folder: Path, suite: str, name: str) -> Iterator[Row]:
    """Yields two rows: the demo, and all tests."""
    root = chroot.made(folder / suite, suite, "python3", "git", "ca-certificates")
    chroot.copy_repository(root)

    def build(command: str) -> str:
        return chroot.run(
            root, ["python3", "build/build.py", command], cwd=chroot.CLONE, fails=True
        )

    shown = build("demo")  # installs the compiler that the row names
    row = Row(name, "x86_64", _python(root), JAXLIB, f"built there: {_tools(root)}", "", "")
    yield row._replace(check="demo", result=results.of_demo(shown))
    yield row._replace(check="all tests", result=results.of_tests(build("test")))


def _python(root: Path) -> str:
    return chroot.run(root, ["python3", "--version"]).split()[-1]


def _tools(root: Path) -> str:
    # The package g++ has a version of its own, and Debian's Bazel 4 prints none.
    gcc = chroot.run(root, ["g++", "-dumpfullversion"]).strip()
    query = ["dpkg-query", "--showformat", "${Version}\n", "--show", "bazel-bootstrap", "binutils"]
    bazel, binutils = re.findall(r"^(?:\d+:)?([\d.]+)", chroot.run(root, query), re.MULTILINE)
    return f"Bazel {bazel}, gcc {gcc}, binutils {binutils}"
