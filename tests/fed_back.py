"""Programs that feed an extended-dtype output back, by the route that it takes through jax.

The tests run them here and, for the values, on stock jaxlib: this module needs no pytest, and run
as a program prints what each route computes. A new route is a new line of `ROUTES`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from reproduction import FIVE_ONES, base_array, identity, keys, mesh_of, next_key, placed

IMPLS = ("threefry2x32", "rbg", "unsafe_rbg")
SCALAR = placed(4, P())
ARRAY = placed(4, P(), (4,))
MATRIX = placed(4, P("a"), (4, 4))


@dataclass(frozen=True)
class Route:
    """One way for an output to become an argument."""

    name: str
    first: Callable[[str], Any]  # from the PRNG implementation's name to the first state
    jit: Callable[[Any], Any]  # from the first state to a fresh jitted function
    call: Callable[[Any, Any], Any] = lambda f, state: f(state)
    entries: Callable[[Any], int] = lambda f: f._cache_size()
    goal: tuple[int, ...] = FIVE_ONES


def fresh(step: Callable[..., Any], **options: Any) -> Any:
    """A jitted function that shares its cache entries with no other."""

    @functools.wraps(step)
    def own(*args: Any, **kwargs: Any) -> Any:
        return step(*args, **kwargs)

    return jax.jit(own, **options)


def jitted(step: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """For routes whose function does not depend on the first state."""
    return lambda first: fresh(step, **options)


def placed_as(spec: P) -> NamedSharding:
    return NamedSharding(mesh_of(4), spec)


def asking_for(step: Callable[[Any], Any], spec: P) -> Callable[[Any], Any]:
    """For routes whose output sharding the caller asks for, on a mesh that exists only then."""
    return lambda first: fresh(step, out_shardings=placed_as(spec))


def ahead_of_time(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda first: fresh(step).lower(first).compile()


def entries_ahead_of_time(compiled: Any) -> int:
    return compiled._call._cache_size()


def plain_leaf() -> jax.Array:
    return jax.device_put(np.arange(4, dtype=np.float32), placed_as(P("a")))


def nested_state(impl: str) -> dict[str, Any]:
    """Keys in dicts and lists, with plain arrays before, between and after them."""
    return {
        "a": plain_leaf(),
        "rngs": [SCALAR(impl), {"dropout": ARRAY(impl), "scale": plain_leaf()}],
        "w": [plain_leaf(), MATRIX(impl)],
    }


def step_nested(state: dict[str, Any]) -> dict[str, Any]:
    key, inner = state["rngs"]
    scaled = {"dropout": inner["dropout"], "scale": inner["scale"] * 2}
    weight, matrix = state["w"]
    return {"a": state["a"] + 1, "rngs": [next_key(key), scaled], "w": [weight - 1, matrix]}


def with_plain(impl: str) -> tuple[jax.Array, jax.Array]:
    return plain_leaf(), SCALAR(impl)


def step_with_plain(x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x + jax.random.uniform(key, x.shape), next_key(key)


def step_by_keyword(*, x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return step_with_plain(x, key)


def step_times(times: int, key: jax.Array) -> jax.Array:
    for _ in range(times):
        key = next_key(key)
    return key


def step_named(key: jax.Array, *, times: int) -> jax.Array:
    return step_times(times, key)


class Static:
    """A pytree that is a static argument here. `flattened` is as long as it was flattened often."""

    flattened: ClassVar[list[None]] = []

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static)


def flatten_static(value: Static) -> tuple[tuple[()], None]:
    Static.flattened.append(None)
    return (), None


jax.tree_util.register_pytree_node(Static, flatten_static, lambda aux, children: Static())


def step_beside_static(static: Static, key: jax.Array) -> jax.Array:
    return next_key(key)


def step_before_static(key: jax.Array, static: Static) -> jax.Array:
    return next_key(key)


def step_beside_named_static(key: jax.Array, *, static: Static) -> jax.Array:
    return next_key(key)


def step_through_nested_jit(key: jax.Array) -> jax.Array:
    return jax.jit(next_key)(jax.jit(next_key)(key))


def reversed_rows(matrix: jax.Array) -> jax.Array:
    """Moves keys along the dimension that is on one device: a stale buffer shows in the values."""
    return matrix[:, ::-1]


ROUTES = (
    Route("scalar key", SCALAR, jitted(next_key)),
    Route("key array", ARRAY, jitted(identity)),
    Route("key matrix", MATRIX, jitted(reversed_rows)),
    Route("keys in dicts and lists", nested_state, jitted(step_nested)),
    Route("positional, beside a plain array", with_plain, jitted(step_with_plain),
          lambda f, s: f(*s)),
    Route("keyword arguments", with_plain, jitted(step_by_keyword),
          lambda f, s: f(x=s[0], key=s[1])),
    Route("nested jit", SCALAR, jitted(step_through_nested_jit)),
    Route("ahead of time, scalar key", SCALAR, ahead_of_time(next_key),
          entries=entries_ahead_of_time),
    Route("ahead of time, key matrix", MATRIX, ahead_of_time(reversed_rows),
          entries=entries_ahead_of_time),
    Route("ahead of time, dicts and lists", nested_state, ahead_of_time(step_nested),
          entries=entries_ahead_of_time),
    Route("donated scalar key", SCALAR, jitted(next_key, donate_argnums=0)),
    Route("donated key matrix", MATRIX, jitted(reversed_rows, donate_argnums=0)),
    Route("donated dicts and lists", nested_state, jitted(step_nested, donate_argnums=0)),
    Route("static_argnums", SCALAR, jitted(step_times, static_argnums=0), lambda f, s: f(2, s)),
    Route("static_argnames", SCALAR, jitted(step_named, static_argnames="times"),
          lambda f, s: f(s, times=2)),
    Route("static pytree by number", SCALAR, jitted(step_beside_static, static_argnums=0),
          lambda f, s: f(Static(), s)),
    Route("static pytree by name", SCALAR,
          jitted(step_beside_named_static, static_argnames="static"),
          lambda f, s: f(s, static=Static())),
    Route("static pytree by negative number", SCALAR,
          jitted(step_before_static, static_argnums=-1), lambda f, s: f(s, Static())),
    Route("out_shardings as it came in", MATRIX, asking_for(reversed_rows, P("a"))),
    Route("out_shardings, another spelling", MATRIX, asking_for(reversed_rows, P("a", None)),
          goal=(1, 2, 2, 2, 2)),
    Route("out_shardings, another placement", MATRIX, asking_for(reversed_rows, P(None, "a")),
          goal=(1, 2, 2, 2, 2)),
    Route("uncommitted key", keys, jitted(next_key)),
)  # fmt: skip


def fed_back(route: Route, impl: str) -> tuple[list[int], Any]:
    """The cache entries after each call, and the last state."""
    state = route.first(impl)
    f = route.jit(state)
    entries = []
    for _ in route.goal:
        state = route.call(f, state)
        entries.append(route.entries(f))
    return entries, state


def bits(state: Any) -> list[str]:
    """Every leaf of `state` as the hexadecimal digits of its bytes."""
    return [np.asarray(base_array(leaf)).tobytes().hex() for leaf in jax.tree.leaves(state)]


def title(route: Route, impl: str) -> str:
    return f"{route.name}, {impl}"


def values() -> dict[str, list[str]]:
    """What each route computes, by its name and the key's implementation."""
    return {
        title(route, impl): bits(fed_back(route, impl)[1]) for route in ROUTES for impl in IMPLS
    }


if __name__ == "__main__":
    print(json.dumps(values()))
