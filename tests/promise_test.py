"""The promise: no program has, after any call, more cache entries than with stock jaxlib."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import functools
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import random_programs
from fed_back import MATRIX, SCALAR, bumped, fresh, placed_as, wrapped
from random_programs import Tally, is_left, is_worse, rule
from reproduction import base_array, next_key, placed

# `build.py promise` runs thousands. docs/reliability.md has the results.
PROGRAMS = 150
# Before 0.11, stock spells the output of a hit differently from that of a slow dispatch. So an
# output may have the spelling of its argument by chance: see "Which spelling" in
# docs/how_it_works.md.
ALWAYS_SPELLED_ALIKE = jax.__version_info__ >= (0, 11)
PROMISED = ["steady", "changing"] if ALWAYS_SPELLED_ALIKE else ["steady"]
each_promised = pytest.mark.parametrize("kind", PROMISED)
IMPL = "threefry2x32"


@functools.cache
def tally(kind: str) -> Tally:
    """Runs the programs once. Three tests read the results."""
    return random_programs.tally_of(range(PROGRAMS), kind)


@each_promised
def test_no_random_program_has_more_entries_than_stock_after_any_call(kind: str) -> None:
    assert tally(kind).worse == []


@each_promised
def test_random_programs_compute_the_bits_that_stock_computes(kind: str) -> None:
    assert tally(kind).other_values == []


@each_promised
def test_fewer_random_programs_have_an_entry_too_many_than_with_stock(kind: str) -> None:
    assert 0 < tally(kind).left < tally(kind).left_by_stock


@pytest.mark.skipif(not ALWAYS_SPELLED_ALIKE, reason="its wiring changes")
def test_a_plain_output_that_jax_spells_like_a_key_makes_no_extra_entry() -> None:
    # Its keys have one placement in two spellings. If all took one of them, its plain output would
    # take it too, in a later call than with stock.
    assert random_programs.tally_of([432], "changing").worse == []


def test_a_program_is_determined_by_its_seed() -> None:
    assert random_programs.program_of(7) == random_programs.program_of(7)


def run_of(entries: tuple[int, ...], placements: int = 1) -> random_programs.Run:
    return random_programs.Run(entries, placements, bits=())


def test_a_run_is_worse_if_it_has_more_entries_after_one_call() -> None:
    stock = run_of((1, 1, 3))

    worse = [is_worse(run_of(entries), stock) for entries in ((1, 1, 3), (1, 2, 2), (1, 1, 2))]

    assert worse == [False, True, False]


def test_a_run_is_left_if_it_has_more_entries_than_placements() -> None:
    assert [is_left(run_of((1, 2), placements)) for placements in (1, 2)] == [True, False]


def constant_beside() -> tuple[Any, Any]:
    """A key that is never returned stands before the one that is, in another spelling."""
    constant, key = placed(4, P("a"), (4, 4))(IMPL), placed(4, P("a", None), (4, 4))(IMPL)
    f = fresh(lambda constant, key: bumped(key))
    return f, [(lambda key: f(constant, key)), key]


def keywords_in_another_order() -> tuple[Any, Any]:
    state = {"z": placed(4, P("a", None), (4, 4))(IMPL), "a": MATRIX(IMPL)}
    f = fresh(lambda *, z, a: {"a": bumped(a), "z": bumped(z)})
    return f, [(lambda state: f(z=state["z"], a=state["a"])), state]


def moved_on_by_one() -> tuple[Any, Any]:
    """Two spellings, neither of them stock's for an output. By position there were three states."""
    short, shorter = MATRIX(IMPL), wrapped(P("a"), (4, 4))(IMPL)
    f = fresh(lambda a, b, c: (bumped(a), bumped(b), bumped(c)))
    return f, [(lambda state: f(state[1], state[2], state[2])), (shorter, shorter, short)]


def passed_around_outside() -> tuple[Any, Any]:
    """Each output keeps the spelling of its argument, and comes back as another argument."""
    state = tuple(wrapped(spec, (4, 4))(IMPL) for spec in (P("a"), P("a", None), P(("a",), None)))
    f = fresh(lambda a, b, c: (bumped(a), bumped(b), bumped(c)))
    return f, [(lambda state: f(state[1], state[2], state[0])), state]


def another_spelling_midway() -> tuple[Any, Any]:
    """A key from outside replaces one of two, in a spelling that the other one had before."""
    short, shorter = MATRIX(IMPL), wrapped(P("a"), (4, 4))(IMPL)
    f = fresh(lambda a, b: (bumped(a), bumped(b)))
    calls = iter([lambda state: f(shorter, short), f_of(f), lambda state: f(short, state[1]),
                  f_of(f), f_of(f)])  # fmt: skip
    return f, [lambda state: next(calls)(state), None]


def f_of(f: Any) -> Any:
    return lambda state: f(*state)


PROGRAMS_BY_HAND = (
    constant_beside, keywords_in_another_order, moved_on_by_one, passed_around_outside,
    another_spelling_midway,
)  # fmt: skip


def entries_of(program: Any, on: bool) -> list[int]:
    with rule(on):
        f, (call, state) = program()
        entries = []
        for _ in range(5):
            state = call(state)
            entries.append(f._cache_size())
    return entries


@pytest.mark.parametrize("program", PROGRAMS_BY_HAND, ids=lambda program: program.__name__)
def test_a_program_that_a_guess_made_worse_has_no_more_entries_than_stock(program: Any) -> None:
    stock, ours = entries_of(program, on=False), entries_of(program, on=True)

    assert [max(pair) for pair in zip(ours, stock)] == stock


@pytest.mark.parametrize(("anew", "entries"), [(False, [1, 2, 2, 2, 2]), (True, [1] * 5)])
def test_keys_in_several_spellings_make_one_entry_if_all_are_placed_again(
    anew: bool, entries: list[int]
) -> None:
    """The limit of the README, and its remedy."""
    sharding = placed_as(P("a"))
    state = tuple(wrapped(spec, (4, 4))(IMPL) for spec in (P("a"), P("a", None)))
    if anew:
        state = tuple(jax.device_put(key, sharding, may_alias=False) for key in state)
    f = fresh(lambda a, b: (bumped(a), bumped(b)))

    found = []
    for _ in range(5):
        state = f(*state)
        found.append(f._cache_size())

    assert found == entries


def test_a_key_from_raw_data_misses_late_unless_it_is_placed_like_the_first() -> None:
    """The limit of the README, and its remedy."""
    replicated = placed_as(P())
    f = fresh(next_key)
    key = first = SCALAR(IMPL)
    for _ in range(3):
        key = f(key)
    raw = jax.device_put(np.asarray(jax.random.key_data(first)), replicated)
    made = jax.random.wrap_key_data(raw, impl=IMPL)

    remedied = f(jax.device_put(made, replicated, may_alias=False))
    entries = [f._cache_size()]
    f(made)
    entries.append(f._cache_size())

    assert entries == [1, 2]
    assert np.array_equal(base_array(remedied), base_array(f(first)))
