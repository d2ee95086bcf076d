"""Sixteen threads that call one jitted function and make new ones."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

from typing import Any

import jax
import pytest

import interpreters

# An odd number of calls in all: a step is undone by the next.
THREADS, FUNCTIONS, CALLS = 16, 11, 21

# Before 0.10 stock's CPU client itself hangs where many threads run programs on two devices.
DEVICES = 2 if jax.__version_info__ >= (0, 10) else 1

PROGRAM = f"""
import faulthandler, json, threading
# Threads that wait for each other are shown, and end the process.
faulthandler.dump_traceback_later({interpreters.TIMEOUT_S - 60}, exit=True)
import fed_back, jax, reproduction
from concurrent.futures import ThreadPoolExecutor
from jax.sharding import PartitionSpec as P
from jaxlib import _pjit

def step(keys):
    # Nothing in it is jitted by jax itself, which would be a slow dispatch too.
    return jax.lax.rev(keys, (0,))

first = reproduction.placed({DEVICES}, P(), (4,))("threefry2x32")
shared = fed_back.fresh(step)
key = shared(first)
expected = first
for _ in range({FUNCTIONS} * ({CALLS} + 2)):
    expected = shared(expected)
expected = jax.random.key_data(expected).tolist()
before = _pjit.counters()
start = threading.Barrier({THREADS})

def work(index):
    start.wait()
    key, entries = first, []
    for _ in range({FUNCTIONS}):
        own = fed_back.fresh(step)
        key = own(own(key))
        entries.append(own._cache_size())
        for _ in range({CALLS}):
            key = shared(key)
    return entries, key

with ThreadPoolExecutor({THREADS}) as pool:
    done = list(pool.map(work, range({THREADS})))
after = _pjit.counters()
print(json.dumps({{
    "added": {{name: after[name] - before[name] for name in after}},
    "entries": [entries for entries, _ in done],
    "right": [jax.random.key_data(key).tolist() == expected for _, key in done],
    "shared": shared._cache_size(),
}}))
"""


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return interpreters.answer(PROGRAM)


def test_counters_add_up_over_threads(report: dict[str, Any]) -> None:
    made = THREADS * FUNCTIONS

    assert report["added"] == {
        "slow_dispatches": made,
        "tables": made,
        "physical_entries": made,
        "respelled_results": made,
        "left_to_stock": 0,
    }


def test_every_function_of_every_thread_has_one_entry(report: dict[str, Any]) -> None:
    assert report["entries"] == [[1] * FUNCTIONS] * THREADS


def test_a_function_that_all_threads_call_has_one_entry(report: dict[str, Any]) -> None:
    assert report["shared"] == 1


def test_every_thread_computes_what_one_alone_does(report: dict[str, Any]) -> None:
    assert report["right"] == [True] * THREADS
