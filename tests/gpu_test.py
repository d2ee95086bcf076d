"""The tables on the GPUs there are."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = ""

from collections.abc import Callable
from typing import Any

import jax
import pytest

import fed_back
import placements
import reproduction
from fed_back import Route
from placements import Pair, Placement
from reproduction import Case

if jax.default_backend() != "gpu":
    pytest.skip("no GPU that this jax can use", allow_module_level=True)

HAS = len(jax.devices())


def marks(needed: int, lacking: Callable[[], str] = placements.present) -> Any:
    reason = f"needs {needed} GPUs, has {HAS}" if needed > HAS else lacking()
    return pytest.mark.skip(reason=reason) if reason else ()


def each(cases: tuple[Placement, ...] | tuple[Pair, ...]) -> list[Any]:
    """Each case with each of its PRNGs. All but a few are on four devices."""
    return [
        pytest.param(case, impl, id=placements.title(case, impl), marks=marks(needed, case.lacks))
        for case in cases
        for needed in (1 if case.name in placements.ON_ONE_DEVICE else 4,)
        for impl in case.impls
    ]


@pytest.mark.parametrize("impl", fed_back.IMPLS)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=marks(case.devices))
        for case in (*reproduction.SECTION_1, *reproduction.SECTION_2)
    ],
)
def test_one_placement_on_gpus_makes_one_cache_entry(case: Case, impl: str) -> None:
    f, traces = reproduction.counted(case.step)

    run = reproduction.call_back(f, traces, case.make(impl), len(case.goal), case.feeds_back)

    assert run.entries == list(case.goal)


@pytest.mark.parametrize(("case", "impl"), each((*placements.PLACEMENTS, *placements.MOVED)))
def test_a_placement_on_gpus_makes_the_entries_that_it_makes_on_cpus(
    case: Placement, impl: str
) -> None:
    assert placements.run(case, impl).entries == list(case.goal)


@pytest.mark.parametrize(("pair", "impl"), each(placements.PAIRS))
def test_two_placements_on_gpus_make_two_cache_entries_and_no_third(pair: Pair, impl: str) -> None:
    entries, _ = placements.run_in_turn(pair, impl)

    assert entries == [1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("impl", fed_back.IMPLS)
@pytest.mark.parametrize(
    "route",
    [
        pytest.param(route, id=route.name, marks=marks(4, lambda route=route: route.lacks))
        for route in fed_back.ROUTES
    ],
)
def test_a_fed_back_output_on_gpus_makes_no_entry_that_its_placement_does_not(
    route: Route, impl: str
) -> None:
    assert fed_back.fed_back(route, impl).entries == list(route.goal)
