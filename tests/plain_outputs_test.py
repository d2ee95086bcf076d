"""The rule leaves alone plain outputs, their shardings, and calls without other outputs."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from typing import Any

import jax
import jax._src.pjit
import pytest
from jax.sharding import PartitionSpec as P
from jaxlib import _pjit

import fed_back
from reproduction import base_array, identity, next_key, placed, placed_float


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The out_shardings of the Python path, as stock reads them."""
    seen: list[list[Any]] = []
    make = jax._src.pjit._get_fastpath_data

    def recorded(*args: Any, **kwargs: Any) -> Any:
        data = make(*args, **kwargs)
        if data is not None:
            seen.append(list(data.out_shardings))
        return data

    monkeypatch.setattr(jax._src.pjit, "_get_fastpath_data", recorded)
    return seen


def step(x: jax.Array, key: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return x + 1, next_key(key), y * 2


def arguments() -> tuple[jax.Array, jax.Array, jax.Array]:
    return fed_back.plain_leaf(), fed_back.SCALAR("threefry2x32"), fed_back.plain_leaf()


def test_a_plain_output_beside_a_key_gets_the_sharding_object_of_the_executable(
    tables: list[list[Any]],
) -> None:
    args = arguments()
    f = fed_back.fresh(step)
    tables.clear()
    f(*args)

    x, _, y = f(*args)

    ((x_sharding, _, y_sharding),) = tables
    assert (x.sharding is x_sharding, y.sharding is y_sharding) == (True, True)


def test_a_key_gets_the_sharding_object_that_the_dispatch_put_on_it() -> None:
    args = arguments()
    f = fed_back.fresh(step)
    _, dispatched, _ = f(*args)

    _, hit, _ = f(*args)

    assert base_array(hit).sharding is base_array(dispatched).sharding


def test_a_key_array_gets_the_sharding_object_of_the_equivalent_argument() -> None:
    key = fed_back.MATRIX("threefry2x32")
    f = fed_back.fresh(fed_back.reversed_rows)

    outputs = [f(key), f(key)]

    expected = base_array(key).sharding
    assert [base_array(output).sharding is expected for output in outputs] == [True, True]


def pointers(key: jax.Array) -> list[int]:
    return [shard.data.unsafe_buffer_pointer() for shard in base_array(key).addressable_shards]


def test_a_respelled_result_is_the_dispatched_one_on_the_same_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatched: list[jax.Array] = []
    make = jax._src.pjit._get_fastpath_data

    def recorded(executable: Any, out_tree: Any, args_flat: Any, out_flat: Any, *rest: Any) -> Any:
        dispatched[:] = out_flat
        return make(executable, out_tree, args_flat, out_flat, *rest)

    key = fed_back.MATRIX("threefry2x32")
    f = fed_back.fresh(fed_back.reversed_rows)
    monkeypatch.setattr(jax._src.pjit, "_get_fastpath_data", recorded)

    respelled = f(key)

    assert pointers(respelled) == pointers(dispatched[0])


COUNTED = (
    # First argument, step, and what one dispatch adds to tables, physical_entries and
    # respelled_results.
    ("float", placed_float(4, P("a"), (4, 4)), identity, (0, 0, 0)),
    ("scalar key", placed(4, P()), identity, (1, 1, 0)),
    ("key of full rank", placed(4, P("a", "b"), (4, 4)), identity, (1, 1, 0)),
    ("key array", placed(4, P(), (4,)), identity, (1, 1, 1)),
    ("key matrix", placed(4, P("a"), (4, 4)), fed_back.reversed_rows, (1, 1, 1)),
)
NAMES = ("slow_dispatches", "tables", "physical_entries", "respelled_results", "left_to_stock")


def added(before: dict[str, int]) -> dict[str, int]:
    now = _pjit.counters()
    return {name: now[name] - before[name] for name in NAMES}


@pytest.mark.parametrize(("first", "step", "counts"), [case[1:] for case in COUNTED],
                         ids=[case[0] for case in COUNTED])  # fmt: skip
def test_a_slow_dispatch_is_counted(first: Any, step: Any, counts: tuple[int, int, int]) -> None:
    x = first("threefry2x32")
    f = fed_back.fresh(step)
    before = _pjit.counters()

    f(x)

    assert added(before) == dict(zip(NAMES, (1, *counts, 0)))


def test_a_hit_runs_no_code_of_ours() -> None:
    state = fed_back.nested_state("threefry2x32")
    f = fed_back.fresh(fed_back.step_nested)
    state = f(state)
    before = _pjit.counters()

    for _ in range(5):
        state = f(state)

    assert added(before) == dict.fromkeys(NAMES, 0)
