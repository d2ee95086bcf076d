"""Tries a finished wheel of ours where nothing may be installed, as a user who is not root.

The system has only python3 and its venv, and nothing else that the build needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from arguments import JAXLIB
from refusal import Refusal, refusing_os_errors
from systems import chroot, results, wheels
from systems.matrix import Row

_SUITE = "trixie"
_NOT_THERE = ("bazel", "c++", "cc", "clang", "g++", "gcc", "git", "ld", "sudo")


def tried(folder: Path) -> Iterator[Row]:
    """Yields one row: the demo of a finished wheel."""
    root = chroot.made(folder / "bare", _SUITE, "python3", "python3-venv")
    version = chroot.run(root, ["python3", "--version"]).split()[-1]
    found = chroot.run(root, ["which", *_NOT_THERE], fails=True).split()
    if found:
        raise Refusal(f"{root}: has {found[0]}, so it shows nothing; delete that folder")
    chroot.copy_repository(root, chroot.USER)
    wheel = wheels.made(version, "x86_64")
    inside = Path("/home") / chroot.USER / wheel.name
    with refusing_os_errors(f"copy {wheel}"):
        shutil.copyfile(wheel, root / inside.relative_to("/"))
    said = chroot.run(
        root,
        ["python3", "build/build.py", "demo", "--wheel", inside],
        user=chroot.USER,
        cwd=chroot.CLONE,
        fails=True,
    )
    check = "demo --wheel, not as root, with only python3 and its venv"
    built = wheels.origin(wheel)
    yield Row("Debian 13", "x86_64", version, JAXLIB, built, check, results.of_demo(said))
