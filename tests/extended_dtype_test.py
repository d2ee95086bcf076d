"""An extended dtype that is not a PRNG key follows the same rule."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import functools

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import own_dtypes
from fed_back import placed_as, reversed_rows
from reproduction import Run, base_array, call_back, counted, identity, transpose

CASES = (
    # Shape, spec of the base array, step, cache entries after each call.
    ((), P(), identity, (1, 1, 1, 1, 1)),
    ((), P(None), identity, (1, 1, 1, 1, 1)),
    ((), P(None, None), identity, (1, 1, 1, 1, 1)),
    ((4,), P(), identity, (1, 1, 1, 1, 1)),
    ((4,), P("a"), identity, (1, 1, 1, 1, 1)),
    ((4, 4), P("a"), reversed_rows, (1, 1, 1, 1, 1)),
    ((4, 4), P("a", None, None, None), reversed_rows, (1, 1, 1, 1, 1)),
    ((4, 4), P("a", "b"), identity, (1, 1, 1, 1, 1)),
    ((4, 4), P("a", "b", None, None), transpose, (1, 2, 2, 2, 2)),
)
each_case = pytest.mark.parametrize(
    ("shape", "spec", "step", "entries"), CASES,
    ids=[f"{shape}, {spec}, {step.__name__}" for shape, spec, step, _ in CASES],
)  # fmt: skip


def fed_back(shape: tuple[int, ...], spec: P, step: object, calls: int) -> Run:
    f, traces = counted(step)
    return call_back(f, traces, own_dtypes.tiles(shape, placed_as(spec)), calls)


@each_case
def test_one_placement_of_tiles_makes_one_cache_entry(
    shape: tuple[int, ...], spec: P, step: object, entries: tuple[int, ...]
) -> None:
    assert fed_back(shape, spec, step, len(entries)).entries == list(entries)


@each_case
def test_tiles_are_traced_once(
    shape: tuple[int, ...], spec: P, step: object, entries: tuple[int, ...]
) -> None:
    assert fed_back(shape, spec, step, len(entries)).traces == 1


@each_case
def test_tiles_are_moved_as_numpy_moves_them(
    shape: tuple[int, ...], spec: P, step: object, entries: tuple[int, ...]
) -> None:
    first = np.asarray(base_array(own_dtypes.tiles(shape, placed_as(spec))))
    moved = {reversed_rows: lambda x: x[:, ::-1], transpose: lambda x: x.swapaxes(0, 1)}
    expected = functools.reduce(lambda x, _: moved.get(step, identity)(x), entries, first)

    last = fed_back(shape, spec, step, len(entries)).last

    np.testing.assert_array_equal(np.asarray(base_array(last)), expected)


def test_tiles_are_an_extended_dtype_and_no_prng_key() -> None:
    dtype = fed_back((), P(), identity, 2).last.dtype

    kinds = jax.dtypes.extended, jax.dtypes.prng_key
    assert [jax.dtypes.issubdtype(dtype, kind) for kind in kinds] == [True, False]
