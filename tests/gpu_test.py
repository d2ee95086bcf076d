"""The tables on the GPUs there are."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = ""

import jax
import pytest

import fed_back
import reproduction
from reproduction import Case

if jax.default_backend() != "gpu":
    pytest.skip("no GPU that this jax can use", allow_module_level=True)


def parameter(case: Case) -> object:
    missing = len(jax.devices()) < case.devices
    reason = f"needs {case.devices} GPUs, has {len(jax.devices())}"
    marks = pytest.mark.skip(reason=reason) if missing else ()
    return pytest.param(case, id=case.name, marks=marks)


CASES = [parameter(case) for case in (*reproduction.SECTION_1, *reproduction.SECTION_2)]


@pytest.mark.parametrize("impl", fed_back.IMPLS)
@pytest.mark.parametrize("case", CASES)
def test_one_placement_on_gpus_makes_one_cache_entry(case: Case, impl: str) -> None:
    f, traces = reproduction.counted(case.step)

    run = reproduction.call_back(f, traces, case.make(impl), len(case.goal), case.feeds_back)

    assert run.entries == list(case.goal)
