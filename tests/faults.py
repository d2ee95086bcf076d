"""Puts faults into a dispatch, one at a time, and prints the outcome of each, as JSON.

Run as `faults.py NAME...`, with the stock jaxlib or with the fix, on two CPU devices.
"""

from __future__ import annotations

import json
import logging
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax._src.pjit
import jax.extend.core
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import own_dtypes
from fed_back import bumped, fresh
from reproduction import base_array, identity, keys, mesh_of

# An error names one callback, with a file and a line.
MESSAGE_CHARS = 60

Outcome = list[Any]
Report = dict[str, list[Any]]  # the outcome of each call, and the cache entries after it


def key_array() -> jax.Array:
    """A key that the rule respells."""
    return jax.device_put(keys("threefry2x32", (4,)), NamedSharding(mesh_of(2), P()))


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """The values that a call returns, or its error."""
    try:
        returned = jax.block_until_ready(call())
    except BaseException as error:
        return [type(error).__name__, str(error)[:MESSAGE_CHARS]]
    return [np.asarray(base_array(leaf)).tolist() for leaf in jax.tree.leaves(returned)]


def calls_on(f: Any, first: Any, call: Callable[[Any], Any] | None = None) -> Report:
    """Three calls. Each gets the output of the last one, or the first state if that failed."""
    report: Report = {"calls": [], "entries": []}
    state = first
    for _ in range(3):
        made: list[Any] = []

        def make(state: Any = state, made: list[Any] = made) -> Any:
            made.append((call or f)(state))
            return made[0]

        report["calls"].append(outcome_of(make))
        report["entries"].append(f._cache_size())
        state = made[0] if made else first
    return report


def raising(error: BaseException) -> Callable[..., Any]:
    def step(*args: Any, **kwargs: Any) -> Any:
        raise error

    return step


def once(fault: Callable[[], None], step: Callable[[Any], Any] = bumped) -> Callable[[Any], Any]:
    """A step with a fault in its first run only."""
    runs: list[None] = []

    def stepped(x: Any) -> Any:
        runs.append(None)
        if len(runs) == 1:
            fault()
        return step(x)

    return stepped


def in_tracing(error: BaseException) -> Report:
    return calls_on(jax.jit(once(raising(error))), key_array())


def in_lowering() -> Report:
    unlowered = jax.extend.core.Primitive("unlowered")
    unlowered.def_abstract_eval(identity)
    return calls_on(jax.jit(lambda x: unlowered.bind(x)), key_array())


def in_compiling() -> Report:
    """Each argument is on a device of its own."""
    f = jax.jit(lambda x, y: (bumped(x), bumped(y)))
    here, there = (jax.device_put(keys("threefry2x32", (4,)), d) for d in jax.devices()[:2])
    return calls_on(f, here, call=lambda x: f(x, there))


def with_callback(callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def step(key: Any) -> Any:
        data = jax.random.key_data(key)
        shape = jax.ShapeDtypeStruct(data.shape, data.dtype)
        bits = jax.pure_callback(callback, shape, data, vmap_method="sequential")
        return jax.random.wrap_key_data(bits, impl="threefry2x32")

    return step


def in_executing() -> Report:
    """On one device: others would wait for the one whose callback failed."""
    f = jax.jit(with_callback(once(raising(ValueError("of the callback")), np.asarray)))
    return calls_on(f, keys("threefry2x32", (4,)))


def caches_cleared_in_tracing() -> Report:
    return calls_on(jax.jit(once(jax.clear_caches)), key_array())


def caches_cleared_in_callback() -> Report:
    return calls_on(jax.jit(with_callback(once(jax.clear_caches, np.asarray))), key_array())


def deleted_before() -> Report:
    key = key_array()
    base_array(key).delete()
    return calls_on(fresh(bumped), key)


def deleted_in_tracing() -> Report:
    key = key_array()
    return calls_on(jax.jit(once(base_array(key).delete)), key)


def deleted_before_a_hit() -> Report:
    key = key_array()
    f = fresh(bumped)
    f(key)
    base_array(key).delete()
    return calls_on(f, key)


@contextmanager
def fastpath_data(change: Callable[[Any, Any], Any]) -> Iterator[None]:
    """Changes what the fastpath gets, by `change(data, flat outputs)`."""
    make = jax._src.pjit._get_fastpath_data

    def changed(executable: Any, out_tree: Any, args_flat: Any, out_flat: Any, *rest: Any) -> Any:
        data = make(executable, out_tree, args_flat, out_flat, *rest)
        return data and change(data, out_flat)

    jax._src.pjit._get_fastpath_data = changed
    try:
        yield
    finally:
        jax._src.pjit._get_fastpath_data = make


def with_data(change: Callable[[Any, Any], Any]) -> Report:
    key = key_array()
    with fastpath_data(change):
        return calls_on(fresh(bumped), key)


def with_tuple() -> Report:
    """Plain outputs beside the key: their entries come from what jax itself keeps as a list."""
    plain = jax.device_put(np.ones(4, np.float32), NamedSharding(mesh_of(2), P()))
    with fastpath_data(as_a_tuple_of_shardings):
        return calls_on(fresh(lambda state: (state[0] * 2, bumped(state[1]))), (plain, key_array()))


def one_too_many(data: Any, out_flat: Any) -> Any:
    return data._replace(out_shardings=[*data.out_shardings, data.out_shardings[0]])


def as_a_namespace(data: Any, out_flat: Any) -> Any:
    return types.SimpleNamespace(**data._asdict())


def as_a_tuple_of_shardings(data: Any, out_flat: Any) -> Any:
    return data._replace(out_shardings=tuple(data.out_shardings))


def outputs_deleted(data: Any, out_flat: Any) -> Any:
    for output in out_flat:
        base_array(output).delete()
    return data


def argument_deleted_after_executing() -> Report:
    key = key_array()

    def delete(data: Any, out_flat: Any) -> Any:
        base_array(key).delete()
        return data

    with fastpath_data(delete):
        return calls_on(fresh(bumped), key)


def with_flatten(fault: Callable[[Any], tuple[Any, ...]], good: int) -> Report:
    """An extended dtype whose outputs are flattened correctly a few times, and then wrongly.

    The first time is jax's own. They are not fed back: stock does not check what it is given.
    """
    flattened: list[Any] = []

    def flatten(x: Any) -> tuple[tuple[Any, ...], Any]:
        flattened.append(x)
        is_good = x is tiles or sum(x is known for known in flattened) <= good
        return (x._data,) if is_good else fault(x), x.aval

    placement = NamedSharding(mesh_of(2), P())
    tiles = own_dtypes.tiles((4,), placement, own_dtypes.dtype_of_arrays(flatten))
    f = jax.jit(lambda x: x[::-1])
    return {"calls": [outcome_of(lambda: f(tiles))], "entries": [f._cache_size()]}


def raise_in_flatten(x: Any) -> tuple[Any, ...]:
    raise ValueError("of the flatten")


def interrupt_in_flatten(x: Any) -> tuple[Any, ...]:
    raise KeyboardInterrupt("of the flatten")


# jax's own code meets the fault, or nothing does.
FAULTS: dict[str, Callable[[], Report]] = {
    "error in tracing": lambda: in_tracing(ValueError("of the step")),
    "KeyboardInterrupt in tracing": lambda: in_tracing(KeyboardInterrupt("of the step")),
    "SystemExit in tracing": lambda: in_tracing(SystemExit("of the step")),
    "error in lowering": in_lowering,
    "error in compiling": in_compiling,
    "error in executing": in_executing,
    "caches cleared in tracing": caches_cleared_in_tracing,
    "caches cleared in a callback": caches_cleared_in_callback,
    "argument deleted before": deleted_before,
    "argument deleted in tracing": deleted_in_tracing,
    "argument deleted before a hit": deleted_before_a_hit,
    "argument deleted after executing": argument_deleted_after_executing,
    "flatten raises": lambda: with_flatten(raise_in_flatten, good=0),
    "no fastpath data": lambda: with_data(lambda data, out_flat: None),
    "out_shardings in a tuple": with_tuple,
}
# In these the rule fails and steps aside. It says so once a process.
STEPPING_ASIDE: dict[str, Callable[[], Report]] = {
    "out_shardings one too many": lambda: with_data(one_too_many),
    "fastpath data of another type": lambda: with_data(as_a_namespace),
    "outputs deleted": lambda: with_data(outputs_deleted),
    "flatten raises later": lambda: with_flatten(raise_in_flatten, good=1),
    "flatten returns one too many later": lambda: with_flatten(
        lambda x: (x._data, x._data), good=1
    ),
    "flatten returns none later": lambda: with_flatten(lambda x: (), good=1),
}


class Kept(logging.Handler):
    """Keeps the log records for the report."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.levelname)


def left_to_stock() -> int | None:
    try:
        from jaxlib import _pjit
    except ImportError:
        return None
    return _pjit.counters()["left_to_stock"]


def main(*names: str) -> None:
    kept = Kept()
    logging.getLogger("jaxlib.pjit").addHandler(kept)
    outcomes = {name: (FAULTS | STEPPING_ASIDE)[name]() for name in names}
    print(json.dumps({"outcomes": outcomes, "records": kept.records, "left": left_to_stock()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
