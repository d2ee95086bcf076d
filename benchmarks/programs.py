"""The step that is measured. Like a training step, it carries keys beside plain leaves."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SCALAR, REPLICATED, SHARDED = "scalar key", "key array, P()", "key array, P('a')"
CASES = (SCALAR, REPLICATED, SHARDED)
_KEYS_A_ROW = 4
_HELD = 2  # a key's program and its workaround's, so that variants can take turns


class Program(NamedTuple):
    """A jitted step and its first arguments."""

    step: Any
    keys: jax.Array
    leaves: list[jax.Array]


@cache
def mesh(devices: int | None = None) -> Mesh:
    """A mesh of the first `devices` devices, or of all, in a line."""
    return Mesh(np.array(jax.devices()[:devices]), ("a",))


def placed(value: Any, spec: P, devices: int | None = None) -> Any:
    return jax.device_put(value, NamedSharding(mesh(devices), spec))


@cache
def first_keys(case: str, devices: int | None = None) -> jax.Array:
    """The keys of a case, spelled as a caller would."""
    shape, spec = {
        SCALAR: ((), P()),
        REPLICATED: ((_KEYS_A_ROW,), P()),
        # A spec shorter than the rank, which JAX's own fix does not handle.
        SHARDED: ((mesh(devices).size, _KEYS_A_ROW), P("a")),
    }[case]
    key = jax.random.key(0)
    return placed(jax.random.split(key, shape) if shape else key, spec, devices)


@lru_cache(_HELD)
def program(case: str, leaves: int, workaround: bool, devices: int | None = None) -> Program:
    """The step of a case, with a function and a cache of its own. Its first call compiles it."""
    keys = first_keys(case, devices)
    if workaround:
        spec = keys.sharding.spec
        keys = placed(jax.random.key_data(keys), spec, devices)

    def step(keys: jax.Array, leaves: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        advance = _next_data if workaround else _next_keys
        return advance(keys), [leaf * 0.5 + 1 for leaf in leaves]

    plain = [placed(np.float32(i), P(), devices) for i in range(leaves)]
    return Program(jax.jit(step), keys, plain)


def _next_keys(keys: jax.Array) -> jax.Array:
    advance: Callable = lambda key: jax.random.split(key)[0]  # noqa: E731
    for _ in range(keys.ndim):
        advance = jax.vmap(advance)
    return advance(keys)


def _next_data(data: jax.Array) -> jax.Array:
    """The workaround: keys exist only inside the step."""
    return jax.random.key_data(_next_keys(jax.random.wrap_key_data(data)))


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Keeps garbage collection out of what is timed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
