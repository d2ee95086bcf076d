"""Compilations outside the user's jitted functions: the user's line, and the reason."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import jaxlib.pjit
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import interpreters
from libraries import imported
from reproduction import mesh_of

HERE = "tests/compilations_test.py"
EXAMPLE = "import jax\nf = jax.jit(lambda x: x)\n"


def compilations_of(call: Callable[[], Any]) -> list[jaxlib.pjit.Compilation]:
    found: list[jaxlib.pjit.Compilation] = []
    with jaxlib.pjit.listening(lambda dispatch: None, found.append):
        call()
    return found


def placed(x: Any, *spec: Any) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh_of(4), P(*spec)))


def line_in(function: Callable, offset: int) -> str:
    return f"{HERE}:{function.__code__.co_firstlineno + offset} ({function.__name__})"


def carry(c: Any, x: Any) -> tuple[Any, Any]:
    return c + x, c


def scanned(xs: Any) -> None:
    jax.lax.scan(lambda c, x: (c + x, c), 0.5, xs)


def scanned_with_one_body(xs: Any) -> None:
    jax.lax.scan(carry, 0.5, xs)


def chosen(xs: Any) -> None:
    jax.lax.cond(xs[0] > 0, lambda x: x, lambda x: -x, xs)


def again(call: Callable[[Any], None], *values: Any) -> list[str | None]:
    """The reasons of the compilations of one operation, in order."""
    name = {"scanned": "scan", "scanned_with_one_body": "scan", "chosen": "cond"}[call.__name__]
    found = compilations_of(lambda: [call(value) for value in values])
    return [made.reason for made in found if made.function == name]


def test_a_scan_outside_jit_with_a_new_body_is_explained() -> None:
    xs = jnp.ones(4)
    found = [c for c in compilations_of(lambda: [scanned(xs)] * 3 and [scanned(xs), scanned(xs)])
             if c.function == "scan"]  # fmt: skip

    body = f"<lambda> at {HERE}:{scanned.__code__.co_firstlineno + 1}"
    assert [made.compiled for made in found] == [1, 1, 1]
    assert {made.called_from for made in found} == {line_in(scanned, 1)}
    assert [made.reason for made in found] == [None] + [
        f"{body} is another function in each call"
    ] * 2
    assert found[1].advice == (
        f"define {body} once, outside the loop, or make the call inside a jitted function"
    )


def test_a_scan_whose_body_is_defined_once_compiles_once() -> None:
    assert again(scanned_with_one_body, *[jnp.ones(5)] * 3) == [None]


def test_a_scan_inside_a_jitted_function_compiles_once() -> None:
    jitted = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c + x, c), 0.5, xs))

    found = compilations_of(lambda: [jitted(np.ones(6)) for _ in range(3)])

    assert found == []


def test_an_operation_on_another_shape_names_both_shapes() -> None:
    xs = [jnp.ones(n) for n in (7, 8)]

    reasons = again(scanned_with_one_body, *xs)

    assert reasons[-1] == "argument 1: was float32[7], now float32[8]"


def test_a_cond_with_a_new_branch_is_explained() -> None:
    reasons = again(chosen, *[jnp.ones(9)] * 2)

    assert reasons[0] is None
    assert reasons[1].endswith("is another function in each call")


def test_an_operation_with_another_parameter_names_it() -> None:
    def reversed_on(axis: int) -> None:
        jax.lax.rev(jnp.ones((2, 11)), (axis,))

    found = compilations_of(lambda: [reversed_on(0), reversed_on(1)])

    reasons = [made.reason for made in found if made.function == "rev"]
    assert reasons == [None, "dimensions: was (0,), now (1,)"]


def lowered_and_compiled() -> None:
    jax.jit(carry).lower(1.0, 2.0).compile()


def test_an_ahead_of_time_compilation_has_the_users_line() -> None:
    found = compilations_of(lowered_and_compiled)

    line = line_in(lowered_and_compiled, 1)
    assert [(made.function, made.kind, made.called_from) for made in found] == [
        ("carry", "ahead of time", line)
    ] * 3
    assert [(made.traced, made.lowered, made.compiled) for made in found] == [
        (1, 0, 0), (0, 1, 0), (0, 0, 1),
    ]  # fmt: skip


def test_a_compiled_function_has_the_line_of_its_definition() -> None:
    with jaxlib.pjit.dispatches() as found:
        jax.jit(carry).lower(1.0, 2.0).compile()(1.0, 2.0)

    (dispatch,) = found
    line = f"{HERE}:{carry.__code__.co_firstlineno}"
    assert (dispatch.function, dispatch.defined_at) == ("carry", f"{line}, ahead of time")


def test_tracing_alone_is_not_a_compilation() -> None:
    assert compilations_of(lambda: jax.eval_shape(lambda x: x, 1.0)) == []


def step(w: Any, batch: Any) -> Any:
    return w - 0.1 * batch["x"].mean()


def struct(*shape: int, **placement: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, **placement)


DIFFERS = "differs from what was compiled ahead of time"
AHEAD = (
    # The batch that was lowered, the batch of the call, and the explanation.
    (lambda: struct(8, 8), lambda: placed(np.ones((8, 8), np.float32), "a"),
     f"batch['x']: {DIFFERS}: was unsharded, now P('a',)"),
    (lambda: struct(8, 8), lambda: np.ones((4, 8), np.float32),
     f"batch['x']: {DIFFERS}: was float32[8,8], now float32[4,8]"),
    (lambda: struct(8, 8, sharding=NamedSharding(mesh_of(4), P())),
     lambda: placed(np.ones((8, 8), np.float32), None, "a"),
     f"batch['x']: {DIFFERS}: was P(), now P(None, 'a')"),
    (lambda: struct(8, 8), lambda: np.ones((8, 8), np.int32),
     f"batch['x']: {DIFFERS}: was float32[8,8], now int32[8,8]"),
    (lambda: struct(), lambda: 1.5, f"batch['x']: {DIFFERS}: was float32[], now float"),
)  # fmt: skip


@pytest.mark.parametrize(("lowered", "called", "said"), AHEAD, ids=range(len(AHEAD)))
def test_a_call_that_compiles_again_differs_from_ahead_of_time_until_its_advice_is_followed(
    lowered: Callable, called: Callable, said: str
) -> None:
    w = placed(np.ones((8, 8), np.float32))

    def misses_after(lower_with: Any) -> list[jaxlib.pjit.Dispatch]:
        jitted = jax.jit(functools.partial(step))
        with jaxlib.pjit.explain() as misses:
            jitted.lower(w, {"x": lower_with}).compile()
            jitted(w, {"x": called()})
        return misses

    (miss,) = misses_after(lowered())
    (difference,) = miss.differences
    assert (str(difference), miss.compiled) == (said, 1)
    advised = re.fullmatch(r"lower it with (.*) for batch\['x'\]", difference.advice)[1]
    names = {"jax": jax, "NamedSharding": NamedSharding, "P": P, "mesh": mesh_of(4)}
    assert misses_after(eval(advised, names)) == []


def test_a_function_that_equinox_lowered_has_the_users_paths() -> None:
    jitted = imported("equinox").filter_jit(lambda w, batch: w + batch["x"])
    w = placed(np.ones((8, 8), np.float32))

    with jaxlib.pjit.explain() as misses:
        jitted.lower(w, {"x": jnp.ones((8, 8))}).compile()
        jitted(w, {"x": placed(np.ones((8, 8), np.float32), "a")})

    (miss,) = misses
    assert [str(each) for each in miss.differences] == [
        f"batch['x']: {DIFFERS}: was unsharded, now P('a',)"
    ]


def test_a_call_with_the_lowered_arguments_is_no_miss_and_compiles_nothing() -> None:
    jitted = jax.jit(lambda x: x * 3)
    with jaxlib.pjit.dispatches() as found:
        jitted.lower(struct(3)).compile()
        jitted(np.ones(3, np.float32))

    (dispatch,) = found
    assert (dispatch.is_miss, dispatch.compiled) == (False, 0)


def cleared_then_ahead_of_time() -> None:
    jax.monitoring.clear_event_listeners()
    lowered_and_compiled_anew()


def lowered_and_compiled_anew() -> None:
    jax.jit(lambda x: x).lower(1.0).compile()


def test_compilations_are_seen_after_jaxs_listeners_are_cleared() -> None:
    assert len(compilations_of(cleared_then_ahead_of_time)) == 3


def test_clearing_jaxs_listeners_clears_ours_too_while_nobody_explains() -> None:
    compilations_of(lowered_and_compiled_anew)

    jax.monitoring.clear_event_listeners()

    assert jax._src.monitoring.get_event_duration_listeners() == []


def test_a_listener_from_before_the_import_of_jax_sees_the_first_compilation() -> None:
    program = (
        "import jaxlib.pjit, json\nfound = []\n"
        "with jaxlib.pjit.listening(print, found.append):\n"
        "    import jax\n    jax.jit(lambda x: x).lower(1.0).compile()\n"
        "print(json.dumps([made.kind for made in found]))\n"
    )

    assert interpreters.answer(program) == ["ahead of time"] * 3
