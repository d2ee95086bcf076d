"""Every route by which an output becomes an argument, and the cache entries that it makes."""

from __future__ import annotations

import functools
import gc
import os
import weakref

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jax.sharding import PartitionSpec as P
from jaxlib import _pjit

import fed_back
import interpreters
from fed_back import Outcome, Route, Static, placed_as
from reproduction import base_array, identity, spec_of

each_route = pytest.mark.parametrize(
    "route",
    [
        pytest.param(
            route,
            id=route.name,
            marks=pytest.mark.skip(reason=route.lacks) if route.lacks else (),
        )
        for route in fed_back.ROUTES
    ],
)
each_impl = pytest.mark.parametrize("impl", fed_back.IMPLS)
each_static_route = pytest.mark.parametrize(
    "route",
    [route for route in fed_back.ROUTES if route.name.startswith("static pytree")],
    ids=lambda route: route.name,
)


@pytest.fixture
def switch() -> Iterator[None]:
    """Restores the switch after the test."""
    previous = _pjit.physical_out_shardings()
    yield
    _pjit.set_physical_out_shardings(previous)


@functools.cache
def outcome_of(route: Route, impl: str) -> Outcome:
    """Runs a route once. Three tests read the outcome."""
    return fed_back.fed_back(route, impl)


@each_impl
@each_route
def test_a_fed_back_output_makes_one_entry_a_placement(route: Route, impl: str) -> None:
    assert outcome_of(route, impl).entries == list(route.goal)


@each_impl
@each_route
def test_a_fed_back_output_is_traced_once(route: Route, impl: str) -> None:
    assert outcome_of(route, impl).traces == 1


@pytest.fixture(scope="module")
def bits_of_stock() -> dict[str, list[str]]:
    program = [str(interpreters.TESTS / "fed_back.py")]
    return interpreters.answer(program, python=interpreters.stock_python(), devices=4)


@each_impl
@each_route
def test_a_fed_back_output_has_the_bits_that_stock_computes(
    route: Route, impl: str, bits_of_stock: dict[str, list[str]]
) -> None:
    bits = fed_back.bits(outcome_of(route, impl).state)

    assert bits == bits_of_stock[fed_back.title(route, impl)]


ASKED_FOR = (
    # What the caller asks for, and the spelling of the base array of every output.
    (P("a"), "P('a', None)"),
    (P("a", None), "P('a', None, None)"),
    (P(None, "b"), "P(None, 'b', None)"),
)


@pytest.mark.parametrize(("asked", "spelled"), ASKED_FOR, ids=str)
def test_an_output_keeps_the_spelling_that_the_caller_asked_for(asked: P, spelled: str) -> None:
    key = fed_back.MATRIX("threefry2x32")
    f = fed_back.fresh(identity, out_shardings=placed_as(asked))

    outputs = [key := f(key) for _ in range(5)]

    assert [spec_of(output) for output in outputs] == [spelled] * 5


DONATING = (("scalar key", fed_back.SCALAR, fed_back.next_key),
            ("key matrix", fed_back.MATRIX, fed_back.reversed_rows))  # fmt: skip


@pytest.mark.parametrize(("first", "step"), [case[1:] for case in DONATING],
                         ids=[case[0] for case in DONATING])  # fmt: skip
def test_every_fed_back_donated_key_is_deleted(
    first: Callable[[str], Any], step: Callable[[Any], Any]
) -> None:
    keys = [first("threefry2x32")]
    f = fed_back.fresh(step, donate_argnums=0)

    for _ in range(4):
        keys.append(f(keys[-1]))

    assert [base_array(key).is_deleted() for key in keys] == [True] * 4 + [False]


def test_a_respelled_result_keeps_no_donated_array_alive() -> None:
    key = fed_back.MATRIX("threefry2x32")
    f = fed_back.fresh(fed_back.reversed_rows, donate_argnums=0)
    donated = []

    for _ in range(3):
        donated.append(weakref.ref(base_array(key)))
        key = f(key)
    gc.collect()

    assert [array() for array in donated] == [None, None, None]


def flattened_by_first_call(route: Route) -> int:
    state = route.first("threefry2x32")
    f = route.jit(state)
    before = len(Static.flattened)
    route.call(f, state)
    return len(Static.flattened) - before


@each_static_route
def test_a_static_pytree_is_flattened_no_more_often_than_without_the_rule(
    route: Route, switch: None
) -> None:
    _pjit.set_physical_out_shardings(False)
    without = flattened_by_first_call(route)

    _pjit.set_physical_out_shardings(True)

    assert flattened_by_first_call(route) == without
