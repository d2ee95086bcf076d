"""The GPUs that the tests on GPUs use, and how a row says how many of them it needs.

`build.py test --platform gpu` sets PJIT_GPUS to the number of GPUs that it lets the tests see.
Then nothing is skipped: a test that finds no GPU fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import jax
import pytest

ASKED_FOR = int(os.environ.get("PJIT_GPUS", 0))
PLATFORM = {"JAX_PLATFORMS": "cuda"}  # for the processes that a test starts


def _found() -> tuple[int, str]:
    try:
        return len(jax.devices("cuda")), ""
    # JAX raises AssertionError, too, if it has a plugin and sees no device.
    except Exception as error:
        return 0, f"{type(error).__name__}: {error}"


HAS, WHY_NONE = _found()
# A mesh has one, two or four of them.
MOST = max((count for count in (1, 2, 4) if count <= HAS), default=0)


def or_skip() -> None:
    """Skips the calling module if there is no GPU, unless GPUs were asked for."""
    if not HAS and not ASKED_FOR:
        pytest.skip("no GPU that this jax can use", allow_module_level=True)


def or_fail() -> None:
    """Fails the calling test if there is no GPU."""
    if not HAS:
        pytest.fail(f"{ASKED_FOR} GPUs were asked for, JAX finds none: {WHY_NONE}", pytrace=False)


def row(least: int, most: int, lacks: str = "") -> list[pytest.MarkDecorator]:
    """The marks of a row that runs on between two numbers of GPUs."""
    if HAS and (lacks or least > HAS):
        return [pytest.mark.skip(reason=lacks or f"needs {least} GPUs, has {HAS}")]
    return [pytest.mark.gpus(min(most, MOST))]


def record(record_property: Callable[[str, object], None], count: int) -> None:
    """Writes the number of GPUs of a row, and their names, into pytest's report."""
    record_property("gpus", count)
    record_property("device", jax.devices()[0].device_kind)
