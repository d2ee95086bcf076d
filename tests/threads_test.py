"""Sixteen threads call one jitted function and make new ones."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

from typing import Any

import jax
import pytest

import interpreters
from time_limit import TIMEOUT_S

# An odd number of calls in total, since each step undoes the one before.
THREADS, FUNCTIONS, CALLS = 16, 11, 21

PROGRAM = f"""
import faulthandler, sys, threading
# Threads that wait for each other are shown, and end the process.
faulthandler.dump_traceback_later({TIMEOUT_S * 0.8}, exit=True)
import contextlib, json, fed_back, jax, reproduction
from concurrent.futures import ThreadPoolExecutor
from jax.sharding import PartitionSpec as P
from jaxlib import _pjit

devices = int(sys.argv[1])
# Stock's CPU client hangs where programs on several devices are started by several threads at once.
one_at_a_time = threading.Lock() if devices > 1 else contextlib.nullcontext()

def step(keys):
    # Nothing in it is jitted by jax itself, which would be a slow dispatch too.
    return jax.lax.rev(keys, (0,))

def called(f, key):
    with one_at_a_time:
        return jax.block_until_ready(f(key))

first = reproduction.placed(devices, P(), (4,))("threefry2x32")
shared = fed_back.fresh(step)
expected = jax.random.key_data(shared(first)).tolist()
before = _pjit.counters()
start = threading.Barrier({THREADS})

def work(index):
    start.wait()
    key, entries = first, []
    for _ in range({FUNCTIONS}):
        own = fed_back.fresh(step)
        key = called(own, called(own, key))
        entries.append(own._cache_size())
        for _ in range({CALLS}):
            key = called(shared, key)
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


@pytest.fixture(scope="module", params=[1, 2], ids=["one device", "two devices"])
def devices(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def report(devices: int) -> dict[str, Any]:
    return interpreters.answer(["-c", PROGRAM, str(devices)])


def test_counters_add_up_over_all_threads(devices: int, report: dict[str, Any]) -> None:
    made = THREADS * FUNCTIONS
    # On one device, jax 0.11 and up spells outputs in full. The argument is spelled shorter.
    respelled = made if devices > 1 or jax.__version_info__ >= (0, 11) else 0
    physical = made if devices > 1 else 0

    assert report["added"] == {
        "slow_dispatches": made,
        "tables": made,
        "physical_entries": physical,
        "respelled_results": respelled,
        "left_to_stock": 0,
    }


def test_every_function_of_every_thread_has_one_entry(report: dict[str, Any]) -> None:
    assert report["entries"] == [[1] * FUNCTIONS] * THREADS


def test_a_function_that_all_threads_call_has_one_entry(report: dict[str, Any]) -> None:
    assert report["shared"] == 1


def test_every_thread_computes_what_one_alone_does(report: dict[str, Any]) -> None:
    assert report["right"] == [True] * THREADS
