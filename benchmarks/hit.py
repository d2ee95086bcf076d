"""Measurement 2: the time to dispatch a hit, and a check that none of our code runs in it."""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax

from programs import SCALAR, program, without_garbage_collection
from rule_switch import counted, counters, set_rule

_WARM_UP = 4  # stock makes its second entry in these


def measure(n: int, calls: int, rule: bool | None, workaround: bool) -> dict[str, Any]:
    """Times the dispatch of fed-back calls, without their execution.

    Returns:
      The median of the calls, the cache entries before and after them, and what the rule counted.
    """
    run = program(SCALAR, n, workaround)
    set_rule(rule)
    run.step._clear_cache()
    keys, leaves = run.keys, run.leaves
    for _ in range(_WARM_UP):
        keys, leaves = jax.block_until_ready(run.step(keys, leaves))
    before, entries = counters(), run.step._cache_size()
    wall, processor = [], []
    with without_garbage_collection():
        for _ in range(calls):
            start, start_processor = time.perf_counter(), time.thread_time()
            keys, leaves = run.step(keys, leaves)
            processor.append(time.thread_time() - start_processor)
            wall.append(time.perf_counter() - start)
            # Not timed, or it would measure the length of the queue.
            jax.block_until_ready((keys, leaves))
    after = counters()
    return {
        "hit_us": round(statistics.median(wall) * 1e6, 4),
        "thread_us": round(statistics.median(processor) * 1e6, 4),
        "entries": [entries, run.step._cache_size()],
        "counted": counted(before, after),
    }
