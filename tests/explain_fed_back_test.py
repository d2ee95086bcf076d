"""The explanation of an argument that an earlier call of the function returned."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib.pjit
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from explaining import Call, explained, floats, place
from fed_back import bumped
from reproduction import keys, mesh_of, next_key


def feed_back(f: Any, calls: int) -> list[Call]:
    state = {"rng": place(keys("threefry2x32"), P()), "w": place(floats(4, 4), P("a"))}

    def call() -> None:
        nonlocal state
        state = f(state)

    return [call] * calls


def train_step(state: dict[str, Any]) -> dict[str, Any]:
    return {"rng": next_key(state["rng"]), "w": state["w"] + 1}


@pytest.fixture
def without_the_rule() -> Iterator[None]:
    previous = jaxlib.pjit.set_physical_out_shardings(False)
    yield
    jaxlib.pjit.set_physical_out_shardings(previous)


def test_without_the_rule_a_fed_back_key_differs_by_its_spelling(
    without_the_rule: None,
) -> None:
    said = explained(*feed_back(jax.jit(train_step), 4))

    if jax.__version_info__ >= (0, 11):
        assert said == []  # a scalar key is right there without the rule
        return
    assert [lines[1:] for lines in said] == [[
        "for train_step defined at here, entry 2",
        "state['rng'] (base array): sharding, same placement, spelled differently: "
        "was P(None,), now P()",
        "to fix it: switch this wheel's rule on: JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=1",
    ]]  # fmt: skip


def test_a_fed_back_key_with_the_rule_has_no_miss() -> None:
    f = jax.jit(train_step)
    calls = feed_back(f, 4)

    with jaxlib.pjit.assert_no_misses():
        for call in calls:
            call()


class Loop(NamedTuple):
    """A state that a function returns with another signature than it got."""

    name: str
    differs: str
    advice: str
    start: Callable[[], Any]
    step: Callable[..., Any]
    beside: Any = None  # the function's other argument


def run(loop: Loop, start: Any, step: Any) -> list[jaxlib.pjit.Dispatch]:
    """Explains three rounds of it."""
    jitted = jax.jit(lambda w, x: step(x) if w is None else step(x, w))
    with jaxlib.pjit.explain() as misses:
        for _ in range(3):
            start = jitted(loop.beside, start)
    return misses


def key_on(spec: P) -> jax.Array:
    return place(keys("threefry2x32", (4, 4)), spec)


ONE_BY_FOUR = Mesh(mesh_of(4).devices.reshape(1, 4), ("a", "b"))
CHANGED_BEFORE = (
    Loop("placed on the mesh", "sharding, different placement",
         "place it before the loop as it is returned: jax.device_put(x, NamedSharding(mesh, P()))",
         lambda: jnp.zeros((4, 4)), lambda x, w: x + w, place(floats(4, 4), P())),
    Loop("an axis of size one dropped", "sharding, same placement, spelled differently",
         "place it before the loop as it is returned: "
         "jax.device_put(x, NamedSharding(mesh, P(None, 'b')))",
         lambda: jax.device_put(floats(4, 4), NamedSharding(ONE_BY_FOUR, P("a", "b"))),
         lambda x, w: x + w.sum(),
         jax.device_put(floats(4, 4), NamedSharding(ONE_BY_FOUR, P(None, "b")))),
    Loop("a key, like a constant one", "sharding, same placement, spelled differently",
         "place it before the loop as it is returned: "
         "jax.device_put(x, NamedSharding(mesh, P('a', None)), may_alias=False)",
         lambda: key_on(P("a")), lambda x, w: bumped(x), key_on(P("a", None))),
    Loop("committed", "committed or not",
         "commit it before the loop: jax.device_put(x, jax.devices()[0])",
         lambda: jnp.zeros((), jnp.float32), lambda x, w: x + w,
         jax.device_put(floats(), jax.devices()[0])),
    Loop("strongly typed", "weak type",
         "start with a dtype of its own, before the loop: jnp.asarray(x, 'float32')",
         lambda: jnp.asarray(0.0), lambda x: x + np.float32(1)),
    Loop("dtype", "shape or dtype",
         "start with the dtype that it is returned with, before the loop: "
         "jnp.asarray(x, 'float32')",
         lambda: jnp.zeros(3, jnp.int32), lambda x: x + np.float32(1)),
    Loop("an array where a float was", "type of the argument",
         "pass an array in every call: jnp.asarray(x)",
         lambda: 0.0, lambda x: x + 1),
    Loop("a tuple where a list was", "pytree structure",
         "pass a tuple before the loop, as it is returned: tuple(x)",
         lambda: [jnp.zeros(3)], lambda x: tuple(x)),
)  # fmt: skip


@pytest.mark.parametrize("loop", CHANGED_BEFORE, ids=lambda loop: loop.name)
def test_state_that_starts_as_advised_misses_no_more(loop: Loop) -> None:
    (miss,) = run(loop, loop.start(), loop.step)
    (difference,) = miss.differences
    assert (difference.kind, difference.advice) == (loop.differs, loop.advice)
    assert difference.is_fed_back

    mesh = ONE_BY_FOUR if "'b'" in loop.advice else mesh_of(4)
    names = {"jax": jax, "jnp": jnp, "NamedSharding": NamedSharding, "P": P, "mesh": mesh}
    start = eval(loop.advice.partition(": ")[2], names | {"x": loop.start()})

    assert [str(miss) for miss in run(loop, start, loop.step)] == []


CONSTRAINED = NamedSharding(mesh_of(4), P("a", "b"))
CHANGED_IN_THE_FUNCTION = (
    (Loop("placed otherwise in each call", "sharding, different placement",
          "have the function return it as it came: "
          "jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P('a', 'b')))",
          lambda: place(floats(4, 4), P("a", "b")), lambda x: x.T),
     Loop("", "", "", lambda: place(floats(4, 4), P("a", "b")),
          lambda x: jax.lax.with_sharding_constraint(x.T, CONSTRAINED))),
    (Loop("weakly typed", "weak type",
          "return it with a dtype of its own: x.astype('float32')",
          lambda: jnp.zeros((), jnp.float32), lambda x: jnp.asarray(1.0)),
     Loop("", "", "", lambda: jnp.zeros((), jnp.float32),
          lambda x: jnp.asarray(1.0).astype("float32"))),
    (Loop("larger in each call", "shape or dtype",
          "make it as large as it gets before the loop, and write into it with "
          "jax.lax.dynamic_update_slice",
          lambda: jnp.zeros(3), lambda x: jnp.concatenate([x, jnp.ones(1)])),
     Loop("", "", "", lambda: jnp.zeros(6),
          lambda x: jax.lax.dynamic_update_slice(x, jnp.ones(1), (3,)))),
    (Loop("larger once", "shape or dtype",
          "start with the shape that it is returned with: float32[3]",
          lambda: jnp.zeros((), jnp.float32), lambda x: x + np.ones(3, np.float32)),
     Loop("", "", "", lambda: jnp.zeros(3, jnp.float32), lambda x: x + np.ones(3, np.float32))),
    (Loop("an array where None was", "pytree structure",
          "start with an array, as it is returned with one",
          lambda: {"cache": None}, lambda x: {"cache": jnp.ones(3)}),
     Loop("", "", "", lambda: {"cache": jnp.zeros(3)}, lambda x: {"cache": jnp.ones(3)})),
)  # fmt: skip


@pytest.mark.parametrize(
    ("loop", "advised"),
    CHANGED_IN_THE_FUNCTION,
    ids=[loop.name for loop, _ in CHANGED_IN_THE_FUNCTION],
)
def test_state_that_is_kept_as_advised_misses_no_more(loop: Loop, advised: Loop) -> None:
    misses = run(loop, loop.start(), loop.step)
    (difference,) = misses[0].differences
    assert (difference.kind, difference.advice) == (loop.differs, loop.advice)
    assert difference.is_fed_back

    assert run(advised, advised.start(), advised.step) == []


def test_state_that_the_user_made_is_not_called_the_functions_own_output() -> None:
    step = jax.jit(lambda x: x + 1)

    with jaxlib.pjit.explain() as misses:
        step(jnp.zeros(3)), step(jnp.zeros(4))

    assert [difference.is_fed_back for miss in misses for difference in miss.differences] == [False]


def test_an_output_is_recognised_and_not_kept_alive() -> None:
    step = jax.jit(lambda x: x + 1)
    with jaxlib.pjit.explain():
        ref = weakref.ref(step(jnp.zeros(3)))
        gc.collect()

        assert ref() is None


def test_the_rule_removes_the_miss_of_a_fed_back_key(without_the_rule: None) -> None:
    if jax.__version_info__ >= (0, 11):
        pytest.skip("a scalar key is right there without the rule")
    (said,) = explained(*feed_back(jax.jit(lambda state: train_step(state)), 4))
    assert said[-1] == (
        "to fix it: switch this wheel's rule on: JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=1"
    )

    jaxlib.pjit.set_physical_out_shardings(True)

    assert explained(*feed_back(jax.jit(lambda state: train_step(state)), 4)) == []
