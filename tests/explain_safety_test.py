"""An explanation harms no program: it keeps nothing alive, locks nothing, and mixes no threads."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.pjit
import pytest
from jaxlib import _fastpath_history

from explaining import explained, floats, fresh
from time_limit import TIMEOUT_S


class Loud:
    """A static argument whose `repr` raises."""

    def __init__(self, text: Callable[[], str]) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text()


def test_nothing_is_kept_alive() -> None:
    def run() -> list[weakref.ref]:
        f = fresh(static_argnums=1)
        static, array = Loud(lambda: "loud"), jnp.ones(3)
        explained(lambda: f(array, static), lambda: f(array, "other"))
        return [weakref.ref(static), weakref.ref(array), weakref.ref(f)]

    refs = run()
    jax.clear_caches()
    gc.collect()

    assert [ref() for ref in refs] == [None] * 3


def test_calls_that_raise_leave_nothing_behind() -> None:
    f = fresh()

    def call(n: int) -> None:
        with pytest.raises(TypeError):
            f({str(n): floats(n)}, object())

    explained(lambda: f(1.0), *(functools.partial(call, n) for n in range(3000)))

    ((_, history),) = (
        known for key, known in _fastpath_history._histories.items() if key[0] == id(f.__wrapped__)
    )
    assert history._size() < 1100


def test_concurrent_calls_do_not_mix() -> None:
    def work(name: str) -> None:
        f = fresh(static_argnums=1)
        for n in range(10):
            f(1.0, f"{name}{n}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcdefgh"]
    with jaxlib.pjit.explain() as misses:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    steps = [(d.old[1], d.new[1]) for miss in misses for d in miss.differences]
    assert len(misses) == 72
    assert all(old == new for old, new in steps)


def test_first_calls_at_once_are_no_misses() -> None:
    threads_at_once = 8
    for _ in range(5):
        f, barrier = fresh(), threading.Barrier(threads_at_once)

        def call(f: Any = f, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            f(1.0)

        threads = [threading.Thread(target=call) for _ in range(threads_at_once)]
        with jaxlib.pjit.dispatches() as found:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert [dispatch.is_miss for dispatch in found] == [False] * len(found)
        assert len({dispatch.function_number for dispatch in found}) == 1


def test_a_nested_dispatch_is_explained_by_itself() -> None:
    inner = fresh()
    inner(1.0)

    def host(x: Any) -> Any:
        inner(2)
        return x

    def step(x: Any) -> Any:
        return jax.pure_callback(host, jax.ShapeDtypeStruct((), jnp.float32), x)

    f = jax.jit(step)
    with jaxlib.pjit.dispatches() as found:
        jax.block_until_ready(f(jnp.float32(1)))

    by_name = {d.function: (d.traced, d.lowered, d.compiled) for d in found}
    assert by_name["step"][2] == 1


def test_a_deleted_argument_raises_the_same_error_as_without_an_explanation() -> None:
    f = fresh()
    x = jnp.ones(3)
    x.delete()

    with pytest.raises(RuntimeError, match="deleted"):
        explained(lambda: f(x))


class Locked:
    """A pytree whose flatten function takes a lock of the user."""

    lock = threading.Lock()


jax.tree_util.register_pytree_node(
    Locked, lambda _: (Locked.lock.acquire(), Locked.lock.release(), ((1.0,), None))[2],
    lambda aux, children: Locked(),
)  # fmt: skip


def test_the_users_code_runs_under_no_lock_of_ours() -> None:
    f, g = fresh(), jax.jit(lambda locked: 1.0)
    thread = threading.Thread(target=lambda: g(Locked()), daemon=True)

    with jaxlib.pjit.explain():
        with Locked.lock:
            thread.start()
            f(1.0)
        thread.join(timeout=TIMEOUT_S)

    assert not thread.is_alive()
