"""Measurement 1: the latency of each call of a fed-back step, and the cache entries after it.

Each call is timed twice: until it returns, which is the dispatch, and until its results are there.
"""

from __future__ import annotations

import time
from typing import Any

import jax

from programs import Program, program, without_garbage_collection
from rule_switch import set_rule

CALLS = 10


def measure(
    case: str, n: int, rule: bool | None, workaround: bool, devices: int | None = None
) -> dict[str, Any]:
    """Feeds back with an empty dispatch cache, and then again from the first keys.

    The step is compiled before, so that the first call is a slow dispatch and no compilation.
    """
    run = program(case, n, workaround, devices)
    set_rule(rule)
    compiled_now = not run.step._cache_size()
    if compiled_now:
        jax.block_until_ready(run.step(run.keys, run.leaves))
    run.step._clear_cache()
    with without_garbage_collection():
        return _fed_back(run, "cold") | _fed_back(run, "warm")


def _fed_back(run: Program, start: str) -> dict[str, list]:
    keys, leaves = run.keys, run.leaves
    whole, dispatch, entries = [], [], []
    for _ in range(CALLS):
        called = time.perf_counter()
        keys, leaves = run.step(keys, leaves)
        returned = time.perf_counter()
        jax.block_until_ready((keys, leaves))
        whole.append(_ms(time.perf_counter() - called))
        dispatch.append(_ms(returned - called))
        entries.append(run.step._cache_size())
    return {
        f"{start}_ms": whole,
        f"{start}_dispatch_ms": dispatch,
        f"{start}_entries": entries,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 4)
