"""Recorded dispatches with many outputs, of which none, one or all are keys."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import PartitionSpec as P
from jaxlib import _jax

from programs import REPLICATED, SCALAR, first_keys, placed

NO_KEY, ONE_KEY, ALL_KEYS, ALL_RESPELLED = "no key", "one key", "all keys", "all keys, respelled"
KINDS = (NO_KEY, ONE_KEY, ALL_KEYS, ALL_RESPELLED)


class Dispatch(NamedTuple):
    """A jitted identity, its argument, and what its Python dispatch function returned for it."""

    function: Any
    argument: list[jax.Array]
    result: tuple
    global_cache_key: Any
    registry: Any
    replay: Any  # a dispatch function in our wrapper, which returns the recorded result


@lru_cache(1)
def dispatch(kind: str, outputs: int) -> Dispatch:
    """One slow dispatch of `outputs` outputs."""
    keys = {NO_KEY: 0, ONE_KEY: 1}.get(kind, outputs)
    original = first_keys(REPLICATED if kind == ALL_RESPELLED else SCALAR)
    # Each key is an array of its own, as in a program.
    argument = [placed(original, P()) for _ in range(keys)]
    argument += [placed(np.float32(i), P()) for i in range(outputs - keys)]
    function = jax.jit(lambda tree: tree)
    state = function.__getstate__()
    miss = state["cache_miss"]
    result = getattr(miss, "__wrapped__", miss)(argument)
    key, registry = state["global_cache_key"], state["pytree_registry"]
    replayed = _jax.pjit(
        "replayed", function, lambda _: result, (), (), key, registry, state["shard_arg_fallback"]
    )
    replay = replayed.__getstate__()["cache_miss"]
    return Dispatch(function, argument, result, key, registry, replay)
