"""What a program sees of the fix besides its cache entries: nothing."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import gc
import weakref
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
    line = USE.count("\n") + 1

    done = interpreters.run(f"{USE}raise ValueError('the end')\n")

    assert done.stderr == (
        "Traceback (most recent call last):\n"
        f'  File "<string>", line {line}, in <module>\n'
        "ValueError: the end\n"
    )


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


def test_a_traceback_has_stock_s_frames_and_no_other() -> None:
    settings = {"JAX_TRACEBACK_FILTERING": "off"}
    stock = interpreters.answer(FRAMES, python=interpreters.stock_python(), settings=settings)

    ours = interpreters.answer(FRAMES, settings=settings)

    assert ours == stock


def references_after_use() -> tuple[weakref.ref[Any], ...]:
    """Weak references to all that a jitted function is made of, with nobody holding it."""

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
    """The same of a function that its own closure holds."""

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
