"""Keys in states of several leaves, and in the modules of two libraries."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import fed_back
from fed_back import ARRAY, MATRIX, SCALAR, bumped, fresh, placed_as
from libraries import imported
from reproduction import identity, next_key, placed, spec_of

IMPL = "threefry2x32"
# Two spellings of one placement. Stock spells an output like LONG.
SHORT, LONG = placed(4, P("a"), (4, 4)), placed(4, P("a", None), (4, 4))


def both_bumped(pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return bumped(pair[0]), bumped(pair[1])


def swapped(pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return bumped(pair[1]), bumped(pair[0])


def doubled(pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    key = bumped(pair[0])
    return key, key


def rotated(keys: list[jax.Array]) -> list[jax.Array]:
    return [bumped(key) for key in (*keys[1:], keys[0])]


def pair_of(first: Callable[[str], Any], second: Callable[[str], Any]) -> Callable[[], Any]:
    return lambda: (first(IMPL), second(IMPL))


def same_twice(make: Callable[[str], Any]) -> Callable[[], Any]:
    def pair() -> tuple[jax.Array, jax.Array]:
        key = make(IMPL)
        return key, key

    return pair


def beside_many_leaves() -> tuple[list[jax.Array], jax.Array, jax.Array]:
    leaf = jax.device_put(np.zeros((), np.float32), placed_as(P()))
    return [leaf] * 1000, SCALAR(IMPL), MATRIX(IMPL)


def step_beside_many(state: Any) -> Any:
    leaves, key, matrix = state
    return leaves, next_key(key), bumped(matrix)


STATES = (
    # The name of the state, its start, the step, and the cache entries after each call.
    # Several spellings: none is taken. Stock has a second entry by then, too.
    ("two spellings, each in its place", pair_of(SHORT, LONG), both_bumped, (1, 2, 2, 2, 2)),
    ("two spellings that change places", pair_of(SHORT, LONG), swapped, (1, 2, 2, 2, 2)),
    ("two outputs of one argument", pair_of(SHORT, LONG), doubled, (1, 2, 2, 2, 2)),
    ("three spellings in turn",
     lambda: [SHORT(IMPL), LONG(IMPL), fed_back.wrapped(P("a"), (4, 4))(IMPL)], rotated,
     (1, 2, 2, 2, 2)),
    ("the same key twice, scalar", same_twice(SCALAR), both_bumped, (1, 1, 1, 1, 1)),
    ("the same key twice, matrix", same_twice(MATRIX), both_bumped, (1, 1, 1, 1, 1)),
    ("keys of several shapes", pair_of(ARRAY, MATRIX), both_bumped, (1, 1, 1, 1, 1)),
    ("keys beside 1,000 plain leaves", beside_many_leaves, step_beside_many, (1, 1, 1, 1, 1)),
)  # fmt: skip


def entries_of(f: Any, state: Any, calls: int = 5) -> list[int]:
    entries = []
    for _ in range(calls):
        state = f(state)
        entries.append(f._cache_size())
    return entries


@pytest.mark.parametrize(("first", "step", "entries"), [case[1:] for case in STATES],
                         ids=[case[0] for case in STATES])  # fmt: skip
def test_a_state_makes_one_entry_a_placement(
    first: Callable[[], Any], step: Callable[[Any], Any], entries: tuple[int, ...]
) -> None:
    assert entries_of(fresh(step), first()) == list(entries)


def test_another_spelling_from_outside_makes_one_more_entry_and_is_then_kept() -> None:
    f = fresh(bumped)

    entries = [entries_of(f, make(IMPL)) for make in (SHORT, LONG, SHORT, LONG)]

    assert entries == [[1] * 5, [2] * 5, [2] * 5, [2] * 5]


def test_an_output_has_the_spelling_that_the_first_dispatch_chose() -> None:
    f = fresh(lambda scalar, matrix: bumped(matrix))

    outputs = [f(SCALAR(IMPL), make(IMPL)) for make in (SHORT, LONG)]

    assert [spec_of(output) for output in outputs] == ["P('a', None)", "P('a', None)"]


def test_outputs_that_are_spelled_like_an_argument_are_left_alone() -> None:
    outputs = fresh(both_bumped)((SHORT(IMPL), LONG(IMPL)))

    assert [spec_of(key) for key in outputs] == ["P('a', None, None)"] * 2


def test_keys_of_different_placements_are_told_apart() -> None:
    state = (SHORT(IMPL), placed(4, P("b"), (4, 4))(IMPL))

    outputs = fresh(both_bumped)(state)

    assert [spec_of(key) for key in outputs] == ["P('a', None)", "P('b', None)"]


def test_rngs_of_flax_make_one_entry() -> None:
    nnx = imported("flax.nnx")
    rngs = nnx.Rngs(params=0, dropout=1)
    graph, state = nnx.split(rngs)
    state = jax.tree.map(lambda leaf: jax.device_put(leaf, placed_as(P())), state)

    def step(state: Any) -> Any:
        rngs = nnx.merge(graph, state)
        rngs.dropout()
        forked = jax.tree.map(
            lambda leaf: next_key(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf, nnx.state(rngs),
        )  # fmt: skip
        return forked

    assert entries_of(fresh(step), state) == [1, 1, 1, 1, 1]


def test_a_module_of_equinox_with_a_key_makes_one_entry() -> None:
    equinox = imported("equinox")

    class Model(equinox.Module):
        weight: jax.Array
        key: jax.Array

    state = Model(fed_back.plain_leaf(), MATRIX(IMPL))
    f = fresh(lambda model: Model(model.weight * 2, bumped(model.key)))

    assert entries_of(f, state) == [1, 1, 1, 1, 1]


def test_a_key_that_is_returned_unchanged_makes_one_entry() -> None:
    state = (SHORT(IMPL), ARRAY(IMPL), SCALAR(IMPL))

    assert entries_of(fresh(identity), state) == [1, 1, 1, 1, 1]
