"""One placement is one cache entry however it is spelled. Two placements are two entries."""

from __future__ import annotations

import functools
import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from collections.abc import Sequence
from typing import Any

import pytest

import interpreters
import placements
from placements import Pair, Placement
from reproduction import Run, base_array


def marks(lacking: str) -> Any:
    return pytest.mark.skip(reason=lacking) if lacking else ()


def each(name: str, cases: Sequence[Placement | Pair]) -> pytest.MarkDecorator:
    """Each case with each of its PRNGs, skipped with a reason where the release lacks something."""
    return pytest.mark.parametrize(
        (name, "impl"),
        [
            pytest.param(case, impl, id=placements.title(case, impl), marks=marks(case.lacks()))
            for case in cases
            for impl in case.impls
        ],
    )


ALL = (*placements.PLACEMENTS, *placements.MOVED)
each_case = each("case", ALL)
each_kept = each("case", placements.PLACEMENTS)
each_pair = each("pair", placements.PAIRS)


@functools.cache
def run_of(case: Placement, impl: str) -> Run:
    """Runs a case once. Four tests read the result."""
    return placements.run(case, impl)


@functools.cache
def run_in_turn(pair: Pair, impl: str) -> tuple[list[int], list[list[Any]]]:
    return placements.run_in_turn(pair, impl)


@pytest.fixture(scope="module")
def bits_of_stock() -> dict[str, list[str]]:
    program = [str(interpreters.TESTS / "placements.py")]
    return interpreters.answer(program, python=interpreters.stock_python(), devices=4)


@each_case
def test_a_placement_makes_one_cache_entry(case: Placement, impl: str) -> None:
    assert run_of(case, impl).entries == list(case.goal)


@each_kept
def test_a_placement_is_traced_once(case: Placement, impl: str) -> None:
    assert run_of(case, impl).traces == 1


@each_case
def test_a_placed_key_has_the_bits_that_stock_computes(
    case: Placement, impl: str, bits_of_stock: dict[str, list[str]]
) -> None:
    expected = bits_of_stock.get(placements.title(case, impl))
    if expected is None:
        pytest.skip("stock raises an error for it")

    assert [placements.bits(run_of(case, impl).last)] == expected


@each_pair
def test_two_placements_make_two_cache_entries_and_no_third(pair: Pair, impl: str) -> None:
    entries, _ = run_in_turn(pair, impl)

    assert entries == [1, 2, 2, 2, 2, 2]


@each_pair
def test_a_key_has_the_bits_that_stock_computes_on_either_of_two_placements(
    pair: Pair, impl: str, bits_of_stock: dict[str, list[str]]
) -> None:
    _, chains = run_in_turn(pair, impl)

    bits = [placements.bits(chain[-1]) for chain in chains]

    assert bits == bits_of_stock[placements.title(pair, impl)]


STAYING = [pair for pair in placements.PAIRS if not pair.name.endswith("the host's")]


@each("pair", STAYING)
def test_an_output_is_placed_as_the_one_of_two_keys_that_it_came_from(
    pair: Pair, impl: str
) -> None:
    _, chains = run_in_turn(pair, impl)

    shardings = [[base_array(key).sharding for key in chain] for chain in chains]

    assert [set(chain) for chain in shardings] == [{chain[0]} for chain in shardings]
