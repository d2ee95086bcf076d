"""A program sees nothing of the fix, except for its cache entries."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import gc
import textwrap
import weakref
from pathlib import Path
from typing import Any

import jax
import pytest

import interpreters
import reproduction
from reproduction import next_key

USE = """
import jax, reproduction
f, traces = reproduction.counted(reproduction.next_key)
key = reproduction.SECTION_1[0].make("threefry2x32")
for _ in range(3):
    key = f(key)
"""
# One function is dropped and one is kept. Both are called on a key that is respelled.
USE_ARRAYS = """
import fed_back, jax, reproduction
first = reproduction.SECTION_2[1].make("threefry2x32")
kept = fed_back.fresh(fed_back.bumped)
for f in (fed_back.fresh(fed_back.bumped), kept):
    key = first
    for _ in range(3):
        key = f(key)
assert kept._cache_size() == 1
"""
# jax warns of every fork once it has threads, with stock too.
NO_FORK_WARNING = ["-W", "ignore::RuntimeWarning"]
# Stock crashes or hangs at the exit of a process that was forked while an XLA client was alive.
# Only a process that is forked earlier can exit as usual.
FORK = """
import os, sys, jax
f = jax.jit(lambda key: jax.random.split(key)[0])
child = os.fork()
if not child:
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
"""
MULTIPROCESSING = """
import multiprocessing

def work():
{use}

if __name__ == "__main__":
    {before}
    child = multiprocessing.get_context("{method}").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0, child.exitcode
"""
ENDINGS = {
    "a module holds the function": "",
    "a cycle holds the function": "cycle = [f]; cycle.append(cycle); del f, cycle",
    "a module of jax's own holds it": "jax.numpy.kept = f",
    "it was compiled ahead of time": "compiled = f.lower(key).compile(); compiled(key)",
    "the caches were cleared": "jax.clear_caches()",
    "it was called in another thread": (
        "import threading; t = threading.Thread(target=f, args=(key,)); t.start(); t.join()"
    ),
    "its dispatch function is held alone": "kept = f._cache_miss; del f",
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_nothing_is_printed_at_exit(ending: str) -> None:
    done = interpreters.run(f"{USE}{ending}\n")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_uncaught_exception_prints_its_traceback_alone() -> None:
    end = "raise ValueError('the end')\n"
    without_jax = interpreters.run("\n" * USE.count("\n") + end)

    done = interpreters.run(USE + end)

    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr == without_jax.stderr


def test_nothing_is_printed_by_a_process_that_was_forked_with_functions_alive() -> None:
    done = interpreters.run([*NO_FORK_WARNING, "-c", FORK])

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def as_worker(method: str, use: str, before: str) -> str:
    return MULTIPROCESSING.format(use=textwrap.indent(use, "    "), before=before, method=method)


MAKE = "import jax; f = jax.jit(lambda key: key)"
USE_HERE = f"exec({USE_ARRAYS!r})"
WORKERS = {
    # A forked process may use jax only if its parent has not used it yet.
    "fork, jax used in the child": as_worker("fork", USE_ARRAYS, MAKE),
    "fork, jax used in the parent": as_worker("fork", "    pass", USE_HERE),
    "spawn": as_worker("spawn", USE_ARRAYS, USE_HERE),
    "forkserver": as_worker("forkserver", USE_ARRAYS, USE_HERE),
}


@pytest.mark.parametrize("program", WORKERS.values(), ids=WORKERS)
def test_nothing_is_printed_by_the_workers_of_multiprocessing(program: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(program)

    done = interpreters.run([*NO_FORK_WARNING, str(script)], devices=4)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


INTERPRETERS = {
    "-X dev -W error": (["-X", "dev", "-W", "error"], {}),
    "PYTHONMALLOC=debug": ([], {"PYTHONMALLOC": "debug"}),
    "PYTHONHASHSEED=0": ([], {"PYTHONHASHSEED": "0"}),
    "PYTHONHASHSEED=1": ([], {"PYTHONHASHSEED": "1"}),
    "PYTHONHASHSEED=4294967295": ([], {"PYTHONHASHSEED": "4294967295"}),
}


@pytest.mark.parametrize(("options", "settings"), INTERPRETERS.values(), ids=INTERPRETERS)
def test_a_run_is_clean_however_the_interpreter_is_started(
    options: list[str], settings: dict[str, str]
) -> None:
    done = interpreters.run([*options, "-c", USE_ARRAYS], settings=settings, devices=4)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


FRAMES = """
import json, os, traceback, jax, reproduction

def fails(key):
    raise ValueError("inside")

def frames(call):
    try:
        call()
    except ValueError as error:
        return [[os.path.basename(frame.filename), frame.name]
                for frame in traceback.extract_tb(error.__traceback__)]

f = jax.jit(fails)
key = reproduction.keys("threefry2x32")
print(json.dumps(frames(lambda: f(key))))
"""


def test_a_traceback_has_the_frames_of_stock_only() -> None:
    settings = {"JAX_TRACEBACK_FILTERING": "off"}
    stock = interpreters.answer(FRAMES, python=interpreters.stock_python(), settings=settings)

    ours = interpreters.answer(FRAMES, settings=settings)

    assert ours == stock


def references_after_use() -> tuple[weakref.ref[Any], ...]:
    """Weak references to all parts of a jitted function that nobody holds."""

    def step(key: jax.Array) -> jax.Array:
        return next_key(key)

    f = jax.jit(step)
    f(f(reproduction.keys("threefry2x32")))
    return weakref.ref(step), weakref.ref(f), weakref.ref(f._cache_miss)


def test_a_dropped_function_is_collected_with_all_its_parts() -> None:
    references = references_after_use()

    gc.collect()

    assert [reference() for reference in references] == [None, None, None]


def references_of_a_cycle() -> tuple[weakref.ref[Any], ...]:
    """The same for a function that its own closure holds."""

    def step(key: jax.Array) -> jax.Array:
        return next_key(key) if holder else key

    holder = [step]
    f = jax.jit(step)
    holder.append(f)
    f(reproduction.keys("threefry2x32"))
    return weakref.ref(step), weakref.ref(f), weakref.ref(f._cache_miss)


def test_a_function_that_holds_itself_is_collected() -> None:
    references = references_of_a_cycle()

    gc.collect()

    assert [reference() for reference in references] == [None, None, None]


def wrappers_alive() -> int:
    kind = type(jax.jit(next_key)._cache_miss)
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


def test_dropped_functions_leave_no_dispatch_function_behind() -> None:
    key = reproduction.keys("threefry2x32")
    before = wrappers_alive()

    for shift in range(50):
        jax.jit(lambda key, shift=shift: next_key(key))(key)

    assert wrappers_alive() == before


MADE, CALLED_EVERY = 20_000, 200


def made_and_dropped(key: jax.Array) -> None:
    for number in range(MADE):
        f = jax.jit(lambda key, number=number: jax.lax.rev(key, (0,)))
        if number % CALLED_EVERY == 0:
            f(f(key))


def test_twenty_thousand_dropped_functions_leave_no_dispatch_function_behind() -> None:
    key = reproduction.keys("threefry2x32", (4,))
    before = wrappers_alive()

    made_and_dropped(key)

    assert wrappers_alive() == before


def cycle_through_dispatch_function() -> tuple[weakref.ref[Any], ...]:
    """A jitted function that only the attributes of its own dispatch function refer to."""

    def step(key: jax.Array) -> jax.Array:
        return jax.lax.rev(key, (0,))

    f = jax.jit(step)
    f(reproduction.keys("threefry2x32", (4,)))
    step.dispatch = f._cache_miss
    return weakref.ref(step), weakref.ref(f), weakref.ref(f._cache_miss)


def test_a_cycle_through_the_dispatch_function_is_collected() -> None:
    references = cycle_through_dispatch_function()

    gc.collect()

    assert [reference() for reference in references] == [None, None, None]
