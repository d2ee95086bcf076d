"""The two files that go upstream compile with every nanobind from 2.4 on."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from paths import ROOT, STATE

RELEASES = (
    "2.4.0", "2.5.0", "2.6.1", "2.7.0", "2.8.0", "2.9.0", "2.9.1", "2.9.2", "2.10.1", "2.10.2",
    "2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0", "3.0.1", "3.1.0",
)  # fmt: skip
COMPILERS = ("g++", "clang++")
STANDARDS = ("c++17", "c++20")
SOURCE = "jaxlib/physical_out_shardings.cc"
JOBS = 2


class Build(NamedTuple):
    """A compiler, a standard and a nanobind release."""

    release: str
    compiler: str
    standard: str


# Each release with each compiler. The oldest and the newest with each standard, too.
BUILDS = [
    *(Build(*parts) for parts in product(RELEASES[1:-1], COMPILERS, STANDARDS[:1])),
    *(Build(*parts) for parts in product((RELEASES[0], RELEASES[-1]), COMPILERS, STANDARDS)),
]


def nanobind(release: str) -> Path:
    """A release as pip installs it. It stays for the next run."""
    folder = STATE / "nanobind" / release
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            whole = Path(temporary) / "whole"
            options = ["--no-deps", "--no-compile", "--quiet", "--target", str(whole)]
            command = [sys.executable, "-m", "pip", "install", *options, f"nanobind=={release}"]
            subprocess.run(command, check=True)
            whole.rename(folder)
    return folder / "nanobind"


def errors(build: Build) -> str:
    """The compiler's errors and warnings."""
    warnings = ["-Wall", "-Wextra", "-Werror"]
    as_our_build_does = ["-fexceptions", "-fno-strict-aliasing", "-fvisibility=hidden"]
    headers = [nanobind(build.release) / "include", sysconfig.get_path("include")]
    command = [
        build.compiler,
        f"-std={build.standard}",
        "-fsyntax-only",
        *warnings,
        *as_our_build_does,
        f"-I{ROOT}",
        *(part for header in headers for part in ("-isystem", str(header))),
        str(ROOT / SOURCE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


@pytest.fixture(scope="module")
def found() -> Mapping[Build, str]:
    """The errors of each build, if this machine has its compiler."""
    builds = [build for build in BUILDS if shutil.which(build.compiler)]
    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(nanobind, RELEASES))
        return dict(zip(builds, pool.map(errors, builds)))


@pytest.mark.parametrize("build", BUILDS, ids="-".join)
def test_the_source_compiles_without_a_warning(build: Build, found: Mapping[Build, str]) -> None:
    if build not in found:
        pytest.skip(f"{build.compiler} is not installed")

    assert found[build] == ""
