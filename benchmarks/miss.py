"""Measurement 3: the rule's cost, beside the whole slow dispatch and JAX's own conversion."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
from jax._src import core, dtypes, sharding_impls

from dispatches import Dispatch, dispatch
from programs import without_garbage_collection
from rule_switch import counted, counters, ours, set_rule

_BATCH_S = 0.002  # a batch has as many calls as fit into this time


def measure(kind: str, n: int) -> dict[str, Any]:
    """Times one slow dispatch and its parts, in microseconds of this thread's processor time.

    All of it runs on the calling thread and waits for nothing, so that the machine's other work
    does not count.

    Returns:
      The slow dispatch of stock; the conversion that jax 0.11 does in it; and, with our jaxlib, the
      slow dispatch while misses are explained, a recorded dispatch through our wrapper with the
      rule on and off, and what the rule counted.
    """
    made = dispatch(kind, n)
    set_rule(False if ours() else None)
    with without_garbage_collection():
        _slow(made)  # the first one meets cold caches
        answer = {"slow_us": _slow(made), "conversion_us": _batch(*_conversion(made))}
        if ours():
            answer |= {"explained_us": _explained(made)} | _rule(made)
    return answer


def _slow(made: Dispatch) -> float:
    made.function._clear_cache()
    return _once(lambda: made.function(made.argument))


def _explained(made: Dispatch) -> float:
    from jaxlib import pjit

    with pjit.explain():
        return _slow(made)


def _rule(made: Dispatch) -> dict[str, Any]:
    call, argument = made.replay, made.argument
    set_rule(False)
    off = _batch(call, argument)
    set_rule(True)
    before = counters()
    call(argument)
    after = counters()
    return {
        "off_us": off,
        "on_us": _batch(call, argument),
        "counted": counted(before, after),
    }


def _conversion(made: Dispatch) -> tuple[Callable, list]:
    """What jax 0.11 does for the outputs in `_get_fastpath_data`, and its argument."""
    outputs = made.result[0]
    pairs = [(output.sharding, output.aval) for output in outputs]

    def convert(pairs: list) -> list:
        return [
            sharding_impls.physical_sharding(a, s)
            if a is not core.abstract_token and dtypes.issubdtype(a.dtype, dtypes.extended)
            else s
            for s, a in pairs
        ]

    return convert, pairs


def _once(call: Callable[[], Any]) -> float:
    start = time.thread_time()
    result = call()
    elapsed = time.thread_time() - start
    jax.block_until_ready(result)
    return round(elapsed * 1e6, 3)


def _batch(call: Callable, argument: Any) -> float:
    """The mean over a batch of calls, in microseconds."""
    start = time.thread_time()
    call(argument)
    calls = int(_BATCH_S / (time.thread_time() - start)) + 1
    start = time.thread_time()
    for _ in range(calls):
        call(argument)
    return round((time.thread_time() - start) / calls * 1e6, 4)
