"""Section 1 of the bug report: keys fed back on two CPU devices, and the controls."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import pytest

import fed_back
import reproduction
from reproduction import Case

pytestmark = pytest.mark.parametrize("impl", fed_back.IMPLS)
each_case = pytest.mark.parametrize("case", reproduction.SECTION_1, ids=lambda case: case.name)


@each_case
def test_a_cold_run_makes_one_cache_entry(case: Case, impl: str) -> None:
    cold, _ = reproduction.cold_and_warm(case, impl)

    assert cold.entries == list(case.goal)


@each_case
def test_a_warm_run_makes_no_more_cache_entries(case: Case, impl: str) -> None:
    _, warm = reproduction.cold_and_warm(case, impl)

    assert warm.entries == list(case.goal)


@each_case
def test_the_function_is_traced_once_and_on_the_cold_run_only(case: Case, impl: str) -> None:
    cold, warm = reproduction.cold_and_warm(case, impl)

    assert (cold.traces, warm.traces) == (1, 0)


def test_a_fed_back_key_needs_no_tracing_on_a_warm_function(impl: str) -> None:
    warm = reproduction.without_tracing(reproduction.NO_TRACING, impl)

    assert (warm.outcome, warm.entries) == ("ok", [1, 1])
