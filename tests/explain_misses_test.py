"""Which dispatches are misses, and how a program gets their explanations."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"


import jax
import jax.numpy as jnp
import jaxlib.pjit
import numpy as np
import pytest

from explaining import Call, explained, fixable, floats, fresh, told, with_callback


def test_assert_no_misses_raises_the_explanation() -> None:
    f = fresh()

    with (
        pytest.raises(AssertionError, match="type of the argument: was float, now int"),
        jaxlib.pjit.assert_no_misses(),
    ):
        f(1.0)
        f(1)


def test_a_function_that_was_warm_before_the_block_has_its_misses_counted() -> None:
    f = fresh()
    f(1.0)

    (said,) = explained(lambda: f(1.0), lambda: f(1))

    assert said[1:] == [
        "for step defined at here, entry 1",
        "no earlier call was noted to compare with",
        "to fix it: explain from the function's first call on",
    ]


def first_call() -> None:
    fresh()(1.0)


def new_function_objects() -> None:
    for _ in range(3):
        fresh()(1.0)


def hits() -> None:
    f = fresh()
    for _ in range(3):
        f(1.0)


def traced_calls() -> None:
    inner = fresh()
    jax.jit(lambda x: inner(x) + inner(x[:2]).sum())(jnp.ones(3))
    jax.vmap(inner)(jnp.ones(3))
    jax.grad(lambda x: inner(x).sum())(jnp.ones(3))


def concrete_arguments_in_a_trace() -> None:
    scale, constant = fresh(), jnp.arange(3.0)
    step = jax.jit(lambda x: x + scale(constant))
    step(jnp.ones(3))
    step(jnp.ones(3, jnp.bfloat16)[:0].sum() + jnp.ones(3))
    jax.make_jaxpr(lambda: scale(constant))()
    scale(constant)


def the_first_call_of_what_has_a_callback() -> None:
    jax.jit(lambda x: with_callback(x))(1.0)


def first_call_after_one_that_raised() -> None:
    step, fix = fixable()
    f = jax.jit(step)
    with pytest.raises(ValueError, match="not today"):
        f(1.0)
    fix()
    f(1.0)


def operations_outside_jit() -> None:
    for n in range(1, 4):
        jnp.ones(n) + n


def a_call_that_raises() -> None:
    f = fresh()
    f(1.0)
    with pytest.raises(TypeError):
        f("no array")
    f(1.0)


@pytest.mark.parametrize(
    "program",
    [
        first_call,
        new_function_objects,
        hits,
        traced_calls,
        concrete_arguments_in_a_trace,
        the_first_call_of_what_has_a_callback,
        first_call_after_one_that_raised,
        operations_outside_jit,
        a_call_that_raises,
    ],
)
def test_a_dispatch_that_is_no_miss_is_not_explained(program: Call) -> None:
    assert explained(program) == []


def test_a_first_dispatch_is_called_one() -> None:
    with jaxlib.pjit.dispatches() as found:
        fresh()(1.0)

    assert told(found) == [[
        "FIRST DISPATCH at here (test_a_first_dispatch_is_called_one) costing T ms "
        "(traced, lowered, compiled)",
        "for step defined at here, entry 1",
    ]]  # fmt: skip


def test_a_subclass_of_a_numpy_array_is_an_array() -> None:
    f = fresh()
    special = floats(2).view(type("Special", (np.ndarray,), {}))

    said = explained(lambda: f(special), lambda: f(special))

    assert said == []
