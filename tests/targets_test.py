"""The Python and the machine to build for, and the source of their headers."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import synthetic_wheels
from commands import wheel as wheel_command
from machine import debian_headers, headers, pythons, targets
from machine.targets import Target
from refusal import Refusal
from synthetic_wheels import MACHINE
from wheels import stock_wheel

THIS = pythons.examine(sys.executable)
OTHER_MACHINE = "aarch64" if MACHINE == "x86_64" else "x86_64"
# Debian's own Pythons have them in two folders.
OWN_HEADERS = debian_headers.in_one_folder(THIS.include, MACHINE)


@pytest.mark.parametrize(
    ("tag", "version", "free_threaded", "full"),
    [
        ("cp311", (3, 11), False, "cp311-cp311"),
        ("cp313t", (3, 13), True, "cp313-cp313t"),
        ("cp314", (3, 14), False, "cp314-cp314"),
    ],
)
def test_a_tag_names_a_target(
    tag: str, version: tuple[int, int], free_threaded: bool, full: str
) -> None:
    target = targets.target(tag, "aarch64")

    assert target == Target(version, free_threaded, "aarch64")
    assert (target.abi, target.tag, target.label) == (tag, full, f"{tag}-aarch64")


@pytest.mark.parametrize("tag", ["3.13", "cp27", "cp313d", "abi3", ""])
def test_a_text_that_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(Refusal, match="is not the tag of a Python; give one such as cp313"):
        targets.target(tag, "x86_64")


def wheel(folder: Path, tag: str, platforms: str) -> Path:
    return synthetic_wheels.write_wheel(folder, b"", tag=tag, platforms=platforms)


@pytest.mark.parametrize("machine", targets.MACHINES)
def test_a_stock_wheel_says_what_to_build_for(machine: str, tmp_path: Path) -> None:
    path = wheel(tmp_path, "cp314-cp314t", f"manylinux_2_27_{machine}.manylinux_2_28_{machine}")

    assert stock_wheel.target_of(path) == Target((3, 14), True, machine)


@pytest.mark.parametrize(
    ("tag", "platforms", "says"),
    [
        ("cp313-cp313", "macosx_11_0_arm64", "is for macosx_11_0_arm64; give a wheel for Linux"),
        ("cp313-cp313", "win_amd64", "is for win_amd64; give a wheel for Linux"),
        ("cp313-cp313", "musllinux_1_2_x86_64", "is for musllinux_1_2_x86_64; give a wheel for"),
        ("py3-none", "manylinux_2_27_x86_64", "is for py3-none; give a wheel of jaxlib for one"),
        (
            "cp313-abi3",
            "manylinux_2_27_x86_64",
            "is for cp313-abi3; give a wheel of jaxlib",
        ),
        ("cp313-cp314", "manylinux_2_27_x86_64", "is for cp313-cp314; give a wheel of jaxlib for"),
    ],
)
def test_a_wheel_that_nothing_can_be_built_for_is_refused_in_one_line(
    tag: str, platforms: str, says: str, tmp_path: Path
) -> None:
    path = wheel(tmp_path, tag, platforms)

    with pytest.raises(Refusal) as refused:
        stock_wheel.target_of(path)

    assert str(refused.value).startswith(f"{path}: {says}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], THIS.target),
        (["--python", sys.executable], THIS.target),
        (["--python", "cp314t"], Target((3, 14), True, MACHINE)),
        (["--machine", OTHER_MACHINE], THIS.target._replace(machine=OTHER_MACHINE)),
        (
            ["--python", "cp313", "--machine", OTHER_MACHINE],
            Target((3, 13), False, OTHER_MACHINE),
        ),
    ],
)
def test_the_command_line_says_what_to_build_for(arguments: list[str], wanted: Target) -> None:
    parser = argparse.ArgumentParser()
    wheel_command.add_arguments(parser)

    assert wheel_command.target(parser.parse_args(arguments), THIS) == wanted


def test_a_given_stock_wheel_decides_unless_another_target_is_asked_for(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    wheel_command.add_arguments(parser)
    path = str(wheel(tmp_path, "cp313-cp313", f"manylinux_2_27_{OTHER_MACHINE}"))

    found, asked = (
        wheel_command.target(parser.parse_args(["--wheel", path, *more]), THIS)
        for more in ([], ["--python", "cp314"])
    )

    assert found == Target((3, 13), False, OTHER_MACHINE)
    assert asked == Target((3, 14), False, OTHER_MACHINE)


def test_an_installed_python_gives_its_own_headers() -> None:
    if not THIS.has_headers:
        pytest.skip("this Python has no headers")

    assert (headers.headers(THIS.target, THIS) / "Python.h").is_file()


def test_a_python_without_the_gil_takes_the_headers_of_the_one_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(headers, "here", lambda version: [THIS._replace(has_headers=True)])

    assert headers.headers(THIS.target._replace(free_threaded=True)) == OWN_HEADERS


def test_debian_comes_before_the_headers_of_another_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(headers, "here", lambda version: [THIS._replace(has_headers=True)])
    monkeypatch.setattr(headers, "debian_headers", lambda target: tmp_path)
    other = THIS.target._replace(machine=OTHER_MACHINE)
    of_debian = headers.headers(other)

    def none(target: Target) -> Path:
        raise Refusal("none")

    monkeypatch.setattr(headers, "debian_headers", none)

    assert (of_debian, headers.headers(other)) == (tmp_path, OWN_HEADERS)


def test_a_python_that_neither_this_machine_nor_debian_has_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(headers, "here", lambda version: [])

    with pytest.raises(Refusal, match=r"no headers for cp39-x86_64: install python3\.9 with its"):
        headers.headers(Target((3, 9), False, "x86_64"))


@pytest.fixture
def no_headers_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(debian_headers, "HEADERS", tmp_path / "headers")
    return tmp_path / "headers"


def test_debian_s_headers_of_another_machine_are_unpacked_once(no_headers_yet: Path) -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get here")
    target = Target((3, 13), False, OTHER_MACHINE)

    folder = debian_headers.debian_headers(target)

    assert folder == no_headers_yet / f"python3.13-{OTHER_MACHINE}"
    assert "#define PY_MINOR_VERSION        13" in (folder / "patchlevel.h").read_text()
    # Debian's first one is a list of machines, each with a folder of its own.
    assert "multiarch" not in (folder / "pyconfig.h").read_text().lower()
    assert "#define SIZEOF_VOID_P 8" in (folder / "pyconfig.h").read_text()
    before = (folder / "Python.h").stat().st_ino
    assert (debian_headers.debian_headers(target) / "Python.h").stat().st_ino == before
    assert sorted(path.name for path in no_headers_yet.iterdir()) == [
        folder.name,
        f"{folder.name}.lock",
    ]


def test_debian_s_headers_are_gathered_in_one_folder(no_headers_yet: Path, tmp_path: Path) -> None:
    include = tmp_path / "include" / "python3.13"
    of_machine = include.parent / "x86_64-linux-gnu" / "python3.13"
    for folder in (include, of_machine):
        folder.mkdir(parents=True)
    (include / "patchlevel.h").write_text("3.13.1")
    (include / "pyconfig.h").write_text("#include <x86_64-linux-gnu/python3.13/pyconfig.h>")
    (of_machine / "pyconfig.h").write_text("#define SIZEOF_VOID_P 8")

    folder = debian_headers.in_one_folder(include, "x86_64")
    (include / "patchlevel.h").write_text("3.13.2")
    again = debian_headers.in_one_folder(include, "x86_64")

    assert folder == again == no_headers_yet / "python3.13-x86_64-installed"
    contents = {path.name: path.read_text() for path in folder.iterdir()}
    assert contents == {"patchlevel.h": "3.13.2", "pyconfig.h": "#define SIZEOF_VOID_P 8"}


def test_headers_in_one_folder_stay_where_they_are(no_headers_yet: Path, tmp_path: Path) -> None:
    assert debian_headers.in_one_folder(tmp_path, "x86_64") == tmp_path
    assert not no_headers_yet.exists()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FileNotFoundError(), "apt-get is missing; this needs a Debian system"),
        (
            subprocess.CalledProcessError(100, [], stderr="W: a warning\nE: no route to it\n\n"),
            "cannot ask apt-get for its mirrors: E: no route to it",
        ),
    ],
)
def test_headers_that_cannot_be_downloaded_are_refused_in_one_line(
    error: Exception, says: str, no_headers_yet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(debian_headers.subprocess, "run", fail)

    with pytest.raises(Refusal, match=says):
        debian_headers.debian_headers(Target((3, 13), False, "x86_64"))

    assert not list(no_headers_yet.glob("python*/"))
