"""The checks of a finished wheel of ours, which `demo`, `test` and `bench` take."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import synthetic_wheels
from machine import pythons
from refusal import Refusal
from synthetic_wheels import MACHINE, TAG
from wheels import finished_wheel
from wheels.seam import PJIT

THIS = pythons.examine(sys.executable)
OURS = {"version": "9.9.9+physical1", "added": (PJIT,)}


def wheel(folder: Path, **options: object) -> Path:
    return synthetic_wheels.write_wheel(folder, b"", **options)


def truncated(folder: Path) -> Path:
    made = wheel(folder, **OURS)
    made.write_bytes(made.read_bytes()[:500])
    return made


REFUSALS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "not there": (lambda folder: folder / "jaxlib.whl", "not found"),
    "stock": (wheel, "is a stock jaxlib; give a wheel of ours"),
    "ours by its label alone": (
        lambda folder: wheel(folder, version="9.9.9+physical1"),
        "has no jaxlib/_pjit.so, though its version says so",
    ),
    "another package": (lambda folder: wheel(folder, name="numpy"), "is a wheel of numpy"),
    "another Python": (lambda folder: wheel(folder, **OURS, tag="cp39-cp39"), "is for cp39-cp39"),
    "macOS": (
        lambda folder: wheel(folder, **OURS, platforms="macosx_11_0_arm64"),
        "is for macosx_11_0_arm64",
    ),
    "truncated": (truncated, "corrupt or truncated"),
    "another content": (
        lambda folder: wheel(
            folder, **OURS, said_hash=("jaxlib/version.py", f"{synthetic_wheels.hash_of(b'x')},1")
        ),
        "Hash mismatch",
    ),
}


@pytest.mark.parametrize(("broken", "says"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_wheel_that_is_broken_or_not_ours_is_refused_in_one_line(
    broken: Callable[[Path], Path], says: str, tmp_path: Path
) -> None:
    path = broken(tmp_path)

    with pytest.raises(Refusal) as refused:
        finished_wheel.check(path, THIS.target)

    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("label", ["+physical1", "+house.physical1"])
def test_a_sound_wheel_names_the_jaxlib_that_it_was_made_from(label: str, tmp_path: Path) -> None:
    made = wheel(tmp_path, version=f"9.9.9{label}", added=(PJIT,))

    assert made.name == f"jaxlib-9.9.9{label}-{TAG}-manylinux_2_27_{MACHINE}.whl"
    assert finished_wheel.check(made, THIS.target) == "9.9.9"


def test_the_wheel_under_test_is_sound() -> None:
    path = os.environ.get("PJIT_WHEEL")
    if not path:
        pytest.skip("PJIT_WHEEL names no wheel of ours")

    assert Path(path).name.startswith(
        f"jaxlib-{finished_wheel.check(Path(path), THIS.target)}+physical1-"
    )
