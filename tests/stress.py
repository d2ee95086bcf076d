"""Puts load on jitted functions that feed keys back, and prints what is left after it.

`stress.py threads` makes and calls functions in many threads. `stress.py functions` makes and drops
very many. Both also run on a stock jaxlib, without the counters. `stress.py hammer` runs on ours
only: threads call while misses are explained and JAX's caches are cleared, which finds most in a
Python without the GIL. The exit status is 1 if a result is wrong. A deadlock ends with the stacks
of all threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from reproduction import base_array, next_key, placed
from time_limit import TIMEOUT_S

try:
    import jaxlib.pjit
    from jaxlib import _pjit
except ImportError:
    _pjit = None

THREADS = 16
CALLS = 3  # of each new function: a slow dispatch, and two hits unless the fed-back key misses
FUNCTIONS = 100_000
CALLED_EVERY = 100  # a call compiles, which takes a thousand times as long as the rest
REPORT_EVERY = 10_000
FLAT_MIB = 1  # growth per REPORT_EVERY functions, at most, after the first
MIB = 1 << 20

Say = Callable[[str], None]


def side() -> str:
    """The jaxlib of this process: stock, or ours with the rule on or off."""
    if _pjit is None:
        return "stock"
    return "ours" if _pjit.physical_out_shardings() else "ours, off"


def counters() -> dict[str, int]:
    """The rule's counters. A stock jaxlib has none."""
    return _pjit.counters() if _pjit else {}


def new_function() -> Any:
    """A jitted function that is in no cache. It returns its key unchanged."""
    return jax.jit(lambda key: key)


class Shared:
    """What all threads share: a warm function, and one that is new for all at the same time."""

    def __init__(self) -> None:
        self.warm = jax.jit(next_key)
        self.raced = new_function()
        self.raced_functions = 1
        self._lock = threading.Lock()

    def replace_raced(self) -> None:
        with self._lock:
            self.raced = new_function()
            self.raced_functions += 1


def work(shared: Shared, key: jax.Array, index: int, until: float) -> dict[str, int]:
    """The work of one thread. Returns its numbers of calls, functions and wrong results."""
    done = {"calls": 0, "functions": 0, "wrong entries": 0, "wrong values": 0}
    expected = np.asarray(base_array(key))
    mine = key
    while time.monotonic() < until:
        mine = shared.warm(mine)
        raced = shared.raced
        for f in (raced, new_function()):
            out = key
            for _ in range(CALLS):
                out = f(out)
            done["wrong values"] += not np.array_equal(np.asarray(base_array(out)), expected)
        done["functions"] += 1
        done["wrong entries"] += f._cache_size() != 1
        done["calls"] += 1 + 2 * CALLS
        if done["functions"] % THREADS == index:
            shared.replace_raced()
    return done


def threads(seconds: float, say: Say) -> dict[str, Any]:
    """Runs the threads, and compares their work with the rule's counters."""
    key = placed(2, P())("threefry2x32")
    shared = Shared()
    for _ in range(CALLS):
        shared.warm(key)
    before = counters()
    until = time.monotonic() + seconds
    faulthandler.dump_traceback_later(seconds + TIMEOUT_S, exit=True)
    say(f"{THREADS} threads for {seconds:.0f} s on {side()} jaxlib")
    with ThreadPoolExecutor(THREADS) as pool:
        parts = [pool.submit(work, shared, key, index, until) for index in range(THREADS)]
        done = [part.result() for part in parts]
    faulthandler.cancel_dump_traceback_later()
    total = {name: sum(each[name] for each in done) for name in done[0]}
    counted = {name: count - before[name] for name, count in counters().items()}
    result = {**total, "raced functions": shared.raced_functions, "counters": counted}
    return {**result, "ok": adds_up(result)}


def adds_up(result: dict[str, Any]) -> bool:
    """Whether every dispatch was counted once, and none gave a wrong result.

    Each function makes one slow dispatch. A raced one makes up to one for each thread.
    """
    counted, raced = result["counters"], result["raced functions"]
    if side() != "ours":
        return not result["wrong values"]
    slow = counted["slow_dispatches"] - result["functions"]
    return (
        not result["wrong values"]
        and not result["wrong entries"]
        and not counted["left_to_stock"]
        and counted["tables"] == counted["slow_dispatches"]
        and 0 < slow <= raced * THREADS
    )


def hammer(seconds: float, say: Say) -> dict[str, Any]:
    """Calls functions in some threads, while others explain, clear the caches and drop functions.

    All calls use one device: stock's CPU client hangs if several threads start programs on several
    devices at the same time.
    """
    key = jax.random.key(7)
    expected = np.asarray(base_array(key)).tolist()
    shared, done = [jax.jit(lambda key: key)], {"calls": 0, "wrong": 0, "explained": 0}
    lock, until = threading.Lock(), time.monotonic() + seconds
    before = _pjit.counters()

    def count(**more: int) -> None:
        with lock:
            for name, number in more.items():
                done[name] += number

    def call() -> None:
        keys = jax.random.split(key, 3)
        outs = [f(x) for f in (shared[0], new_function()) for x in (key, keys, np.float32(1), key)]
        wrong = sum(np.asarray(base_array(outs[at])).tolist() != expected for at in (0, 3, 4, 7))
        count(calls=len(outs), wrong=wrong)

    def explain() -> None:
        with jaxlib.pjit.explain() as misses:
            call()
        count(explained=sum(bool(str(miss)) for miss in misses))

    def clear() -> None:
        call()
        clear_caches(shared[0])

    def replace() -> None:
        call()
        shared[0] = new_function()
        gc.collect()

    def repeat(job: Callable[[], None]) -> None:
        while time.monotonic() < until:
            job()

    jobs = (call, explain, clear, explain, call, explain, replace, explain)
    faulthandler.dump_traceback_later(seconds + TIMEOUT_S, exit=True)
    say(f"{len(jobs)} threads for {seconds:.0f} s, the GIL {gil()}")
    with ThreadPoolExecutor(len(jobs)) as pool:
        for each in [pool.submit(repeat, job) for job in jobs]:
            each.result()
    faulthandler.cancel_dump_traceback_later()
    counted = {name: number - before[name] for name, number in _pjit.counters().items()}
    went_well = done["calls"] and done["explained"] and not done["wrong"]
    ok = bool(went_well) and not counted["left_to_stock"]
    return {"threads": len(jobs), "GIL": gil(), **done, "counters": counted, "ok": ok}


def clear_caches(f: Any) -> None:
    """Clears JAX's caches. Without the GIL, only the cache of `f`.

    There, jax.clear_caches() in one thread can crash another, also with a stock jaxlib: CPython's
    `functools.lru_cache` has a race (python/cpython#132641), in 3.13.5 too.
    """
    if gil() == "off":
        f.clear_cache()
    else:
        jax.clear_caches()


def gil() -> str:
    """Whether the GIL is on. An extension may have switched it on."""
    return "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off"


def resident() -> int:
    """The resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def alive() -> dict[str, int]:
    """The numbers of live jitted functions and of their dispatch functions."""
    gc.collect()
    f = new_function()
    kinds = {"jitted functions": type(f), "dispatch functions": type(f._cache_miss)}
    if _pjit is None:
        del kinds["dispatch functions"]  # in stock an ordinary function, one of very many
    count = {
        name: sum(type(each) is kind for each in gc.get_objects()) for name, kind in kinds.items()
    }
    return {name: number - 1 for name, number in count.items()}


def make_and_drop(count: int, key: jax.Array) -> None:
    """Makes functions, half of which hold themselves, and calls a few."""
    for number in range(count):
        held: list[Any] = []
        f = jax.jit(lambda key, held=held: key)
        if number % 2:
            held.append(f)
        if number % CALLED_EVERY == 0:
            f(f(key))


def functions(count: int, say: Say) -> dict[str, Any]:
    """Makes and drops functions, and reports the memory at every REPORT_EVERY."""
    key = placed(2, P())("threefry2x32")
    make_and_drop(CALLED_EVERY + 1, key)
    before, memory = alive(), []
    for done in range(0, count, REPORT_EVERY):
        make_and_drop(min(REPORT_EVERY, count - done), key)
        gc.collect()
        memory.append(round(resident() / MIB, 1))
        say(f"{min(done + REPORT_EVERY, count)} functions on {side()} jaxlib: {memory[-1]} MiB")
    after = alive()
    growth = (memory[-1] - memory[0]) / max(len(memory) - 1, 1)
    return {
        "functions": count,
        "called": -(-count // CALLED_EVERY),
        "resident MiB": memory,
        "growth": round(growth, 2),
        "alive before": before,
        "alive after": after,
        "ok": after == before and growth < FLAT_MIB,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    programs = parser.add_subparsers(dest="program", required=True)
    of_threads = programs.add_parser("threads", help=f"{THREADS} threads call and make functions")
    of_threads.add_argument("--seconds", type=float, default=60)
    of_hammer = programs.add_parser("hammer", help="threads call, explain and clear caches")
    of_hammer.add_argument("--seconds", type=float, default=60)
    of_functions = programs.add_parser("functions", help="functions are made and dropped")
    of_functions.add_argument("--count", type=int, default=FUNCTIONS)
    for each in (of_threads, of_hammer, of_functions):
        each.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if options.program == "hammer" and _pjit is None:
        parser.error("hammer is for a jaxlib of ours; this one is stock")
    if options.program == "threads":
        result = threads(options.seconds, say)
    elif options.program == "hammer":
        result = hammer(options.seconds, say)
    else:
        result = functions(options.count, say)
    result = {"program": options.program, "jaxlib": side(), "jax": jax.__version__, **result}
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name}: {value}" for name, value in result.items()))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
