"""The compiler of the wheels for any Linux, and what it makes of Bazel's calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from refusal import Refusal
from wheels import portable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the compiler, with a zig that prints its arguments."""
    folder = tmp_path / "a folder"
    for name, text in (
        ("python", f'echo "{folder}"'),
        ("zig", 'echo "$ZIG_GLOBAL_CACHE_DIR $ZIG_LOCAL_CACHE_DIR"; echo "$@"'),
    ):
        program = folder / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    monkeypatch.setattr(portable, "ZIG", folder)
    monkeypatch.setattr(portable, "CACHE", folder / "cache")
    monkeypatch.setattr(portable, "environment", lambda *_: folder / "python")
    return folder


def said(compiler: Path, *arguments: str) -> list[str]:
    return subprocess.run(
        [compiler, *arguments], capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (["-c", "x.c"], "cc -target aarch64-linux-gnu.2.17 -O2 -c x.c"),
        (["-c", "x.cc"], "c++ -target aarch64-linux-gnu.2.17 -O2 -c x.cc"),
        (["-c", "nb.cpp"], "c++ -target aarch64-linux-gnu.2.17 -O2 -c nb.cpp"),
        (["-shared", "x.o"], "c++ -target aarch64-linux-gnu.2.17 -O2 -s -shared x.o"),
        (["@x.so-2.params"], "c++ -target aarch64-linux-gnu.2.17 -O2 -s @x.so-2.params"),
    ],
)
def test_one_compiler_compiles_c_and_c_plus_plus_and_links(
    arguments: list[str], call: str, folder: Path
) -> None:
    compiler = portable.compiler("aarch64")

    assert said(compiler, *arguments) == [f"{folder}/cache {folder}/cache", call]


def test_each_machine_has_a_compiler_of_its_own(folder: Path) -> None:
    for machine in ("aarch64", "x86_64"):
        assert portable.compiler(machine) == folder / machine / "cc"
        assert f"-target {machine}-linux-gnu.2.17" in said(folder / machine / "cc", "x.cc")[1]


def test_an_existing_compiler_is_not_written_again(folder: Path) -> None:
    before = portable.compiler("x86_64").stat()

    # Not all of it: to read the file changes when it was last read.
    assert portable.compiler("x86_64").stat().st_ctime_ns == before.st_ctime_ns


def test_the_cache_exists_before_bazel_makes_it_writable(folder: Path) -> None:
    portable.compiler("x86_64")

    assert (folder / "cache").is_dir()


def test_each_machine_s_library_is_compiled_before_the_wheels(folder: Path) -> None:
    calls = folder / "calls"
    (folder / "zig").write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\n')

    portable.compile_libraries(["aarch64", "x86_64"])

    targets = sorted(call.split()[2] for call in calls.read_text().splitlines())
    assert targets == ["aarch64-linux-gnu.2.17", "x86_64-linux-gnu.2.17"]


def test_a_library_that_does_not_compile_is_refused_with_the_compiler_s_line(folder: Path) -> None:
    (folder / "zig").write_text('#!/bin/sh\necho "error: no space left" >&2\nexit 1\n')

    with pytest.raises(Refusal) as refused:
        portable.compile_libraries(["x86_64"])

    assert str(refused.value) == (f"{folder}/x86_64/cc cannot compile libc++: error: no space left")
