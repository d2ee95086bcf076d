"""Programs that feed an extended-dtype output back, each by another route through jax.

The tests run them here, and on stock jaxlib for the values. So this module needs no pytest. As a
program, it prints what each route computes. A new route is a new line of `ROUTES`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.export
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import own_dtypes
from reproduction import FIVE_ONES, base_array, identity, keys, mesh_of, next_key, placed

IMPLS = ("threefry2x32", "rbg", "unsafe_rbg")
SCALAR = placed(4, P())
ARRAY = placed(4, P(), (4,))
MATRIX = placed(4, P("a"), (4, 4))
TRACES: list[None] = []  # one item for each trace of a function from `fresh`


@dataclass(frozen=True)
class Route:
    """One way for an output to become an argument."""

    name: str
    first: Callable[[str], Any]  # from the PRNG implementation's name to the first state
    jit: Callable[[Any], Any]  # from the first state to a fresh jitted function
    call: Callable[[Any, Any], Any] = lambda f, state: f(state)
    entries: Callable[[Any], int] = lambda f: f._cache_size()
    goal: tuple[int, ...] = FIVE_ONES
    lacks: str = ""  # what the release lacks, if anything


def fresh(step: Callable[..., Any], **options: Any) -> Any:
    """A jitted function that shares no cache entries with another."""

    @functools.wraps(step)
    def own(*args: Any, **kwargs: Any) -> Any:
        TRACES.append(None)
        return step(*args, **kwargs)

    return jax.jit(own, **options)


def jitted(step: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """For routes whose function does not depend on the first state."""
    return lambda first: fresh(step, **options)


def placed_as(spec: P) -> NamedSharding:
    return NamedSharding(mesh_of(4), spec)


def asking_for(step: Callable[[Any], Any], spec: P) -> Callable[[Any], Any]:
    """For routes whose caller asks for the output sharding, on a mesh that is made only then."""
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
    """A pytree that serves as a static argument. `flattened` has one item for each flattening."""

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


def bumped(key: jax.Array) -> jax.Array:
    """Other keys of the same shape, by an operation that compiles fast and moves no data."""
    return jax.random.wrap_key_data(jax.random.key_data(key) + 1, impl=jax.random.key_impl(key))


def in_shard_map(key: jax.Array) -> jax.Array:
    return jax.shard_map(bumped, mesh=mesh_of(4), in_specs=P("a"), out_specs=P("a"))(key)


def in_scan(key: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda carry, _: (next_key(carry), None), key, None, length=2)[0]


def in_while_loop(keys: jax.Array) -> jax.Array:
    return jax.lax.while_loop(
        lambda carry: carry[0] < 2, lambda carry: (carry[0] + 1, bumped(carry[1])), (0, keys)
    )[1]


def in_cond(key: jax.Array) -> jax.Array:
    return jax.lax.cond(jax.random.bits(key) % 2 == 0, next_key, bumped, key)


def constrained_to(spec: P) -> Callable[[Any], Any]:
    """For routes whose function places the output itself."""
    return lambda first: fresh(
        lambda key: jax.lax.with_sharding_constraint(bumped(key), placed_as(spec))
    )


WITHOUT_EXPORTED_KEYS = (
    "jax 0.7 to 0.9 cannot compile a call of an exported function of keys"
    if (0, 7) <= jax.__version_info__ < (0, 10)
    else ""
)


def exported(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda first: fresh(jax.export.export(jax.jit(step))(first).call)


def from_callback(impl: str) -> jax.Array:
    """A key array that is made shard by shard."""
    whole = keys(impl, (4, 4))
    return jax.make_array_from_callback((4, 4), placed_as(P("a")), lambda index: whole[index])


def wrapped(spec: P, shape: tuple[int, ...] = ()) -> Callable[[str], jax.Array]:
    """A maker of keys from raw data that is on the mesh already, in the spelling of raw data."""
    return lambda impl: jax.random.wrap_key_data(
        jax.device_put(jax.random.key_data(keys(impl, shape)), placed_as(spec)),
        impl=own_dtypes.impl_of(impl),
    )


def from_another_mesh(impl: str) -> jax.Array:
    """A key array that comes from a mesh of the same devices in another order."""
    here = mesh_of(4)
    there = Mesh(here.devices[::-1, ::-1], here.axis_names)
    key = jax.device_put(keys(impl, (4, 4)), NamedSharding(there, P("a")))
    return jax.device_put(key, placed_as(P("a")))


def beside_constant(first: jax.Array) -> Any:
    """The first key, which is on the mesh, is a constant of the function too."""
    return fresh(lambda key: jax.random.fold_in(key, jax.random.bits(first)))


def constant_or_bumped(first: jax.Array) -> Any:
    """The output may be a key array that is a constant."""
    return fresh(lambda key: jax.numpy.where(jax.random.bits(key[0, 0]) >= 0, first, bumped(key)))


def loss(x: jax.Array, key: jax.Array) -> jax.Array:
    return (x * jax.random.uniform(key, x.shape)).sum()


def step_by_grad(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    x, key = state
    return x - jax.grad(loss)(x, key), next_key(key)


def step_by_jvp(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    x, key = state
    return x + jax.jvp(lambda x: loss(x, key), (x,), (x,))[1], next_key(key)


def step_by_checkpoint(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    x, key = state
    return x - jax.grad(jax.checkpoint(loss))(x, key), next_key(key)


def beside_grad(key: jax.Array) -> jax.Array:
    return jax.grad(lambda x: (x * 2, bumped(key)), has_aux=True)(1.0)[1]


class Sampler:
    """A pytree that holds a key."""

    def __init__(self, key: jax.Array) -> None:
        self.key = key

    def step(self) -> Sampler:
        return Sampler(next_key(self.key))


jax.tree_util.register_pytree_node(
    Sampler, lambda sampler: ((sampler.key,), None), lambda _, children: Sampler(*children)
)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Times:
    """A pytree without leaves. All of it is static, although it is not a static argument."""

    times: int

    def step(self, key: jax.Array) -> jax.Array:
        return step_times(self.times, key)


def step_static_leafless(times: Times, key: jax.Array) -> jax.Array:
    return times.step(key)


def step_bound(bound: jax.tree_util.Partial) -> jax.tree_util.Partial:
    """A function with a key bound to it, as an argument and as the output."""
    return jax.tree_util.Partial(bound.func, next_key(bound.args[0]))


def bound_key(impl: str) -> jax.tree_util.Partial:
    return jax.tree_util.Partial(jax.random.bits, SCALAR(impl))


def reversed_rows(matrix: jax.Array) -> jax.Array:
    """Moves keys along the dimension that is not split. A stale buffer shows in the values."""
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
    Route("in_shardings as it came in", MATRIX,
          lambda first: fresh(bumped, in_shardings=placed_as(P("a")))),
    Route("in_shardings, another spelling", MATRIX,
          lambda first: fresh(bumped, in_shardings=placed_as(P("a", None)))),
    Route("in_shardings and out_shardings", MATRIX,
          lambda first: fresh(bumped, in_shardings=placed_as(P("a")),
                              out_shardings=placed_as(P("a")))),
    Route("exported, scalar key", SCALAR, exported(next_key), lacks=WITHOUT_EXPORTED_KEYS),
    Route("exported, key array", ARRAY, exported(bumped), lacks=WITHOUT_EXPORTED_KEYS),
    Route("shard_map inside jit", MATRIX, jitted(in_shard_map)),
    Route("scan", SCALAR, jitted(in_scan)),
    Route("while_loop", MATRIX, jitted(in_while_loop)),
    Route("cond", SCALAR, jitted(in_cond)),
    Route("vmap", MATRIX, jitted(jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, 1))))),
    Route("with_sharding_constraint, another spelling", MATRIX, constrained_to(P("a", None))),
    Route("with_sharding_constraint, another placement", MATRIX, constrained_to(P(None, "a")),
          goal=(1, 2, 2, 2, 2)),
    Route("fold_in", SCALAR, jitted(lambda key: jax.random.fold_in(key, 3))),
    Route("clone", SCALAR, jitted(jax.random.clone)),
    Route("made by make_array_from_callback", from_callback, jitted(bumped)),
    Route("wrap_key_data, scalar", wrapped(P()), jitted(next_key)),
    Route("wrap_key_data, matrix", wrapped(P("a"), (4, 4)), jitted(reversed_rows)),
    Route("device_put from another mesh", from_another_mesh, jitted(bumped)),
    Route("beside a constant key", SCALAR, beside_constant),
    Route("a constant key or the argument", MATRIX, constant_or_bumped),
    Route("around grad", with_plain, jitted(step_by_grad)),
    Route("around jvp", with_plain, jitted(step_by_jvp)),
    Route("around checkpoint", with_plain, jitted(step_by_checkpoint)),
    Route("inside checkpoint", MATRIX, jitted(jax.checkpoint(bumped))),
    Route("auxiliary output of grad", MATRIX, jitted(beside_grad)),
    Route("functools.partial", SCALAR, jitted(functools.partial(step_times, 2))),
    Route("method of a pytree", lambda impl: Sampler(SCALAR(impl)),
          jitted(Sampler.step)),
    Route("bound method of a static pytree", SCALAR, jitted(Times(2).step)),
    Route("pytree without leaves as a dynamic argument", SCALAR, jitted(step_static_leafless),
          lambda f, s: f(Times(2), s)),
    Route("key bound to a function", bound_key, jitted(step_bound)),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The outcome of the calls of a route."""

    entries: list[int]  # in the function's cache, after each call
    traces: int
    state: Any  # what the last call returned


def fed_back(route: Route, impl: str) -> Outcome:
    state = route.first(impl)
    before = len(TRACES)
    f = route.jit(state)
    entries = []
    for _ in route.goal:
        state = route.call(f, state)
        entries.append(route.entries(f))
    return Outcome(entries, len(TRACES) - before, state)


def bits(state: Any) -> list[str]:
    """Every leaf of `state` as the hexadecimal digits of its bytes."""
    return [np.asarray(base_array(leaf)).tobytes().hex() for leaf in jax.tree.leaves(state)]


def title(route: Route, impl: str) -> str:
    return f"{route.name}, {impl}"


def values() -> dict[str, list[str]]:
    """What each route computes, by its name and the key's implementation."""
    return {
        title(route, impl): bits(fed_back(route, impl).state)
        for route in ROUTES
        if not route.lacks
        for impl in IMPLS
    }


if __name__ == "__main__":
    print(json.dumps(values()))
