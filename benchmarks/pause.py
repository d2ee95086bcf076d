"""Measurement 1: the latency of each call of a fed-back step, and the cache entries after it."""

from __future__ import annotations

import time
from typing import Any

import jax

from programs import Program, program, without_garbage_collection
from rule_switch import set_rule

CALLS = 10


def measure(case: str, n: int, rule: bool | None, workaround: bool) -> dict[str, Any]:
    """Feeds back from an empty dispatch cache, and then once more from the start.

    The executable is there from the first sample on, so that a first call is a slow dispatch and
    no compilation.
    """
    run = program(case, n, workaround)
    set_rule(rule)
    compiled_now = not run.step._cache_size()
    if compiled_now:
        jax.block_until_ready(run.step(run.keys, run.leaves))
    run.step._clear_cache()
    with without_garbage_collection():
        cold_ms, cold_entries = _fed_back(run)
        warm_ms, warm_entries = _fed_back(run)
    return {
        "cold_ms": cold_ms,
        "cold_entries": cold_entries,
        "warm_ms": warm_ms,
        "warm_entries": warm_entries,
    }


def _fed_back(run: Program) -> tuple[list[float], list[int]]:
    keys, leaves = run.keys, run.leaves
    times, entries = [], []
    for _ in range(CALLS):
        start = time.perf_counter()
        keys, leaves = jax.block_until_ready(run.step(keys, leaves))
        times.append(round((time.perf_counter() - start) * 1e3, 4))
        entries.append(run.step._cache_size())
    return times, entries
