"""Section 2 of the bug report: every spelling of a placement, on a 2x2 mesh of CPU devices."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from typing import Any

import pytest

import fed_back
import reproduction
from reproduction import Case, spec_of

pytestmark = pytest.mark.parametrize("impl", fed_back.IMPLS)
each_case = pytest.mark.parametrize("case", reproduction.SECTION_2, ids=lambda case: case.name)
each_key_case = pytest.mark.parametrize(
    "case",
    [case for case in reproduction.SECTION_2 if case.name.startswith("key")],
    ids=lambda case: case.name,
)


def states_of(case: Case, impl: str) -> list[Any]:
    """The first argument, and the output of each call."""
    f, _ = reproduction.counted(case.step)
    states = [case.make(impl)]
    for _ in case.goal:
        states.append(f(states[-1]))
    return states


@each_case
def test_one_placement_makes_one_cache_entry(case: Case, impl: str) -> None:
    f, traces = reproduction.counted(case.step)

    done = reproduction.call_back(f, traces, case.make(impl), len(case.goal))

    assert done.entries == list(case.goal)


@each_case
def test_the_function_is_traced_once(case: Case, impl: str) -> None:
    f, traces = reproduction.counted(case.step)

    done = reproduction.call_back(f, traces, case.make(impl), len(case.goal))

    assert done.traces == 1


@each_key_case
def test_every_output_compares_equal_to_the_input_in_sharding(case: Case, impl: str) -> None:
    first, *outputs = (reproduction.base_array(state).sharding for state in states_of(case, impl))

    assert [output == first for output in outputs] == [True] * 5


@each_key_case
def test_every_output_has_the_spelling_of_the_first(case: Case, impl: str) -> None:
    _, *outputs = states_of(case, impl)

    assert {spec_of(output) for output in outputs} == {spec_of(outputs[0])}
