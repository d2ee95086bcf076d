"""The explanation of a function that never takes the fastpath."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"


import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from explaining import explained, fixable, floats, place, records_of, told_lines, with_callback


def test_a_function_with_a_callback_never_takes_the_fastpath() -> None:
    f = jax.jit(with_callback)

    said = explained(*[lambda: f(1.0)] * 3)

    assert [lines[1:] for lines in said] == [[
        "for with_callback defined at here, which never takes the fastpath: "
        "it has host callbacks or other effects",
        "to fix it: leave the callback out of the step where speed matters",
    ]] * 2  # fmt: skip


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this release has no jax.new_ref")
def test_a_function_of_mutable_refs_never_takes_the_fastpath() -> None:
    ref = jax.new_ref(jnp.ones(3))
    f = jax.jit(lambda r: r[...] + 1)

    (said,) = explained(*[lambda: f(ref)] * 2)

    assert said[1:] == [
        "for <lambda> defined at here, which never takes the fastpath: "
        "it reads or writes mutable refs"
    ]


def test_an_uncommitted_array_on_several_devices_is_named() -> None:
    x = place(floats(4), P())
    uncommitted = type(x)(x.aval, x.sharding, x._arrays, False, _skip_checks=True)
    f = jax.jit(lambda y: y + 1, in_shardings=x.sharding)

    (said,) = explained(*[lambda: f(uncommitted)] * 2)

    assert said[1:] == [
        "for <lambda> defined at here, which never takes the fastpath: "
        "an argument is an uncommitted array on several devices",
        "to fix it: commit it with jax.device_put(x, sharding)",
    ]


def test_the_entry_of_a_call_that_raised_is_named_once(
    flag: None, caplog: pytest.LogCaptureFixture
) -> None:
    step, fix = fixable()
    f = jax.jit(step)

    with pytest.raises(ValueError, match="not today"):
        f(1.0)
    fix()
    for _ in range(4):
        f(1.0)

    (record,) = records_of(caplog)
    assert told_lines(record.getMessage())[1:] == [
        "for step defined at here, which never takes the fastpath: "
        "an earlier call like it raised, and its entry was never filled",
        "to fix it: call clear_cache() of the jitted function after an error",
    ]


def test_the_entry_of_a_call_that_raised_is_named_if_jitted_again() -> None:
    step, fix = fixable()

    with pytest.raises(ValueError, match="not today"):
        explained(lambda: jax.jit(step)(1.0))
    fix()

    said = explained(*[lambda: jax.jit(step)(1.0)] * 3)

    assert {lines[1].rpartition(": ")[2] for lines in said} == {
        "an earlier call like it raised, and its entry was never filled"
    }


def test_a_function_that_never_takes_the_fastpath_is_logged_once(
    flag: None, caplog: pytest.LogCaptureFixture
) -> None:
    f = jax.jit(lambda x: with_callback(x))

    for _ in range(5):
        f(1.0)

    assert len(records_of(caplog)) == 1
