"""The explanation of a fastpath miss: each kind of difference, in its exact words."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import collections
import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import placements
from explaining import Call, explained, floats, fresh, place
from reproduction import keys


class Program(NamedTuple):
    """Calls of one new jitted function. The last one misses."""

    name: str
    options: dict[str, Any]
    calls: Callable[[Any], list[Call]]
    work: str  # what JAX did in the last call
    says: list[str]  # without the line that names the function


def twice_of(first: Any, second: Any) -> Callable[[Any], list[Call]]:
    return lambda f: [lambda: f(first), lambda: f(second)]


def placed_twice(first: P, second: P) -> Callable[[Any], list[Call]]:
    def calls(f: Any) -> list[Call]:
        return [functools.partial(f, place(floats(4, 4), spec)) for spec in (first, second)]

    return calls


class Tagged:
    """A pytree of one leaf, with metadata."""

    def __init__(self, x: Any, tag: Any) -> None:
        self.x, self.tag = x, tag


jax.tree_util.register_pytree_node(
    Tagged, lambda node: ((node.x,), node.tag), lambda tag, leaves: Tagged(*leaves, tag)
)


@dataclasses.dataclass(frozen=True)
class Config:
    axis: int


class Plain:
    """Objects without an equality of their own."""


class Equal:
    """Equal objects with Python's default `repr`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1


def cleared(f: Any) -> list[Call]:
    return [lambda: f(1.0), lambda: (f.clear_cache(), f(1.0))]


def then_under(setting: Callable[[], Any]) -> Callable[[Any], list[Call]]:
    def calls(f: Any) -> list[Call]:
        def set_and_call() -> None:
            with setting():
                f(1.0)

        return [lambda: f(1.0), set_and_call]

    return calls


with_precision = then_under(lambda: jax.default_matmul_precision("float32"))
with_strict_promotion = then_under(lambda: jax.numpy_dtype_promotion("strict"))
on_another_device = then_under(lambda: jax.default_device(jax.devices()[1]))


def committed_later(f: Any) -> list[Call]:
    x = jnp.ones(4, jnp.float32)
    return [lambda: f(x), lambda: f(jax.device_put(x, jax.devices()[0]))]


def weak_later(f: Any) -> list[Call]:
    return [lambda: f(jnp.asarray(1.0, jnp.float32)), lambda: f(jnp.asarray(1.0))]


ALL = "traced, lowered, compiled"


ONLY_COMPILED = "not traced, lowered, compiled"


KEY = keys("threefry2x32")


NONE = "not traced, not lowered, not compiled"


BEFORE = "to fix it: each has an entry of its own: call it once with each before the loop"
SAME_KEYS = "to fix it: pass the same keys and as many elements in every call"
ONE_WAY = "to fix it: pass it by position in every call, or by name in every call"
NOT_STATIC = (
    "to fix it: each value is compiled again: unless it sets a shape, "
    "pass it as an argument that is not static: jnp.asarray(-2)"
)
PAD = "to fix it: pad it to (4,) in every call, as here where it is (3,): jnp.pad(x, [(0, 1)])"
PROGRAMS = (
    Program("a key of a dict that is added", {}, twice_of({"a": 1.0}, {"a": 1.0, "b": 2.0}), ALL, [
        "x['b']: pytree structure: was not there, now an array", SAME_KEYS]),
    Program("a key of a dict that is another", {}, twice_of({"a": 1.0}, {"b": 1.0}), ALL, [
        "x: pytree structure: was dict key 'a', now dict key 'b'", SAME_KEYS]),
    Program("keys of a dict of one hash", {}, twice_of({-1: 1.0}, {-2: 1.0}), ALL, [
        "x: pytree structure: was dict key -1, now dict key -2", SAME_KEYS]),
    Program("an array where None was", {}, twice_of({"a": None}, {"a": 1.0}), ALL, [
        "x['a']: pytree structure: was None, now an array",
        "to fix it: pass an array in every call"]),
    Program("other containers", {}, twice_of([1.0], (1.0,)), ALL, [
        "x: pytree structure: was a list of 1, now a tuple of 1",
        "to fix it: pass a list in every call: list(x)"]),
    Program("a key where an array was", {}, twice_of(floats(2).astype(np.uint32), KEY), ALL, [
        "x: pytree structure: was an array, now PRNGKeyArray[fry]", BEFORE]),
    Program("a key of another kind", {}, twice_of(KEY, keys("rbg")), ALL, [
        "x: pytree structure: was PRNGKeyArray[fry], now PRNGKeyArray[rbg]", BEFORE]),
    Program("metadata of a node", {}, twice_of(Tagged(1.0, 1), Tagged(1.0, 2)), ALL, [
        "x: pytree structure: was 1, now 2",
        "to fix it: each value is compiled again: unless it sets a shape, "
        "have it a leaf of the pytree, as an array: jnp.asarray(2)"]),
    Program("metadata that is shown alike", {},
            lambda f: [lambda: f(Tagged(1.0, lambda: 0)), lambda: f(Tagged(1.0, lambda: 0))], ALL, [
        "x: pytree structure: was another object that prints alike, "
        "now <function <lambda>.<locals>.<lambda>.<locals>.<lambda>>",
        "to fix it: make it once, outside the loop"]),
    Program("static argument", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, "short"), lambda: f(1.0, "x" * 200)], ALL, [
        f"n: static argument: was 'short', now '{'x' * 119}...", BEFORE]),
    Program("static argument by name", {"static_argnames": "n"},
            lambda f: [lambda: f(1.0), lambda: f(1.0, n=2)], ALL, [
        "n: static argument: was not passed, now 2", "to fix it: pass n in every call"]),
    Program("static argument by position, then by name",
            {"static_argnums": 1, "static_argnames": "n"},
            lambda f: [lambda: f(1.0, 2), lambda: f(1.0, n=2)], ALL, [
        "n: static argument: was by position, now by name", ONE_WAY]),
    Program("argument by position, then by name", {},
            lambda f: [lambda: f(1.0), lambda: f(x=1.0)], ALL, [
        "x: pytree structure: was by position, now by name", ONE_WAY]),
    Program("argument by name, then by position", {},
            lambda f: [lambda: f(x=1.0), lambda: f(1.0)], ALL, [
        "x: pytree structure: was by name, now by position", ONE_WAY]),
    Program("argument that is passed another way, of another structure", {},
            lambda f: [lambda: f({"a": 1.0}), lambda: f(x={"b": 1.0})], ALL, [
        "x: pytree structure: was by position, now by name", ONE_WAY,
        "x: pytree structure: was dict key 'a', now dict key 'b'", SAME_KEYS]),
    Program("tuples of one hash", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, (0, -1)), lambda: f(1.0, (0, -2))], ALL, [
        "n[1]: static argument: was -1, now -2", NOT_STATIC]),
    Program("sets of one hash", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, frozenset({-1})), lambda: f(1.0, frozenset({-2}))], ALL, [
        "n: static argument: was frozenset({-1}), now frozenset({-2})", BEFORE]),
    Program("static arguments of one hash", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, -1), lambda: f(1.0, -2)], ALL, [
        "n: static argument: was -1, now -2", NOT_STATIC]),
    Program("static objects of one hash", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, Config(-1)), lambda: f(1.0, Config(-2))], ALL, [
        "n.axis: static argument: was -1 in Config(axis=-1), now -2 in Config(axis=-2)",
        NOT_STATIC]),
    Program("static object that is compared by identity", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, Plain()), lambda: f(1.0, Plain())], ALL, [
        "n: static argument: was another object that prints alike, "
        "now <explain_differences_test.Plain object>",
        "to fix it: make it once, outside the loop, or give Plain `__eq__` and `__hash__`"]),
    Program("shape", {}, twice_of({"x": [floats(3)]}, {"x": [floats(4)]}), ALL, [
        "x['x'][0]: shape or dtype: was float32[3], now float32[4]",
        PAD.replace("jnp.pad(x,", "jnp.pad(x['x'][0],")]),
    Program("rank", {}, twice_of(floats(3), floats(3, 1)), ALL, [
        "x: shape or dtype: was float32[3], now float32[3,1]", BEFORE]),
    Program("dtype", {}, twice_of(floats(3), floats(3).astype(np.int32)), ALL, [
        "x: shape or dtype: was float32[3], now int32[3]",
        "to fix it: give it one dtype in every call: jnp.asarray(x, 'float32')"]),
    Program("an array where a float was", {}, twice_of(1.0, floats()), ALL, [
        "x: type of the argument: was float, now float32[]",
        "to fix it: pass an array in every call: jnp.asarray(x, 'float32')"]),
    Program("a NumPy float where a float was", {}, twice_of(1.0, np.float64(1)), ALL, [
        "x: type of the argument: was float, now float32[]",
        "to fix it: pass an array in every call: jnp.asarray(x, 'float32')"]),
    Program("type of a scalar", {}, twice_of(1.0, 1), ALL, [
        "x: type of the argument: was float, now int",
        "to fix it: pass one type in every call: float(x)"]),
    Program("weak type", {}, weak_later, ALL, [
        "x: weak type: was strongly typed, now weakly typed",
        "to fix it: give it a dtype in every call: jnp.asarray(x, 'float32')"]),
    Program("committed or not", {}, committed_later, ONLY_COMPILED, [
        "x: committed or not: was uncommitted, now committed",
        "to fix it: commit it in every call: jax.device_put(x, jax.devices()[0])"]),
    Program("different placement", {}, placed_twice(P("a"), P("b")),
            ONLY_COMPILED, [
        "x: sharding, different placement: was P('a',), now P('b',)",
        "to fix it: place it as in the earlier call: "
        "jax.device_put(x, NamedSharding(mesh, P('a',)))"]),
    Program("another order of the devices", {},
            lambda f: [lambda: f(jax.device_put(floats(4), placements.of_mesh(P("a"))())),
                       lambda: f(jax.device_put(floats(4), placements.of_mesh(
                           P("a"), order=(3, 2, 1, 0))()))],
            "not traced, not lowered, compiled", [
        "x: sharding, different placement: was P('a',) on devices 0, 1, 2, 3, "
        "now P('a',) on devices 3, 2, 1, 0",
        "to fix it: place it as in the earlier call: "
        "jax.device_put(x, NamedSharding(mesh, P('a',))), "
        "with a mesh of the devices 0, 1, 2, 3, in that order"]),
    Program("one device or its mesh", {},
            lambda f: [lambda: f(jax.device_put(floats(4), jax.devices()[0])),
                       lambda: f(jax.device_put(floats(4), placements.of_mesh(P(), (1, 1))()))],
            ALL, [
        "x: sharding, same placement, of another type: was jax.devices()[0], now P()",
        "to fix it: place it as in the earlier call: jax.device_put(x, jax.devices()[0])"]),
    Program("spelled differently", {}, placed_twice(P("a"), P("a", None)), NONE, [
        "x: sharding, same placement, spelled differently: was P('a',), now P('a', None)",
        "to fix it: place it as in the earlier call: "
        "jax.device_put(x, NamedSharding(mesh, P('a',)))"]),
    Program("a key spelled differently", {},
            lambda f: [lambda: f(place(keys("threefry2x32", (4, 4)), P("a"))),
                       lambda: f(place(keys("threefry2x32", (4, 4)), P("a", None)))], NONE, [
        "x (base array): sharding, same placement, spelled differently: "
        "was P('a', None), now P('a', None, None)",
        "to fix it: place it so in every call: "
        "jax.device_put(x, NamedSharding(mesh, P('a')), may_alias=False)"]),
    Program("jit configuration", {}, with_precision, ALL, [
        "jax_default_matmul_precision: jit configuration: was None, now float32",
        "to fix it: set it before the first call: "
        "jax.config.update('jax_default_matmul_precision', 'float32')"]),
    Program("jit configuration that is an enum", {}, with_strict_promotion, ALL, [
        "jax_numpy_dtype_promotion: jit configuration: was standard, now strict",
        "to fix it: set it before the first call: "
        "jax.config.update('jax_numpy_dtype_promotion', 'strict')"]),
    Program("jit configuration that is no simple value", {}, on_another_device, ALL, [
        f"jax_default_device: jit configuration: was None, now {jax.devices()[1]!r}",
        "to fix it: set it before the first call: "
        "jax.config.update('jax_default_device', jax.devices()[1])"]),
    Program("an entry that is gone", {}, cleared, ALL, [
        "the same signature as an earlier call, whose entry is gone",
        "to fix it: do not call clear_cache() or jax.clear_caches() between calls"]),
    Program("equal floats that print otherwise", {"static_argnums": 1},
            lambda f: [lambda: f(floats(3), 0.0), lambda: f(floats(4), -0.0)], ALL, [
        "x: shape or dtype: was float32[3], now float32[4]", PAD]),
    Program("equal static arguments that print otherwise", {"static_argnums": 1},
            lambda f: [lambda: f(floats(3), Equal()), lambda: f(floats(4), Equal())], ALL, [
        "x: shape or dtype: was float32[3], now float32[4]", PAD]),
    Program("numpy's types, which are one to the fastpath", {},
            twice_of((np.float32(1), floats(3)), (floats(), floats(4))), ALL, [
        "x[1]: shape or dtype: was float32[3], now float32[4]",
        PAD.replace("jnp.pad(x,", "jnp.pad(x[1],")]),
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_miss_says_what_differs_and_what_to_do(program: Program) -> None:
    calls = program.calls(fresh(**program.options))

    (said,) = explained(*calls)

    work, *rest = said
    assert re.search(r"costing T ms \((.*)\) because:$", work)[1] == program.work
    entry = 1 if program.calls is cleared else 2
    assert rest == [f"for step defined at here, entry {entry}", *program.says]


UNLIKE_ARGUMENTS = (
    1.0, np.float64(1), 1j, np.complex128(1), True, np.bool_(True), 1, np.int64(1), np.float16(1),
    floats(1), floats(1, 1), floats(0), KEY, (KEY,), None, (), [], {}, (None,), ((),), (1.0,),
    [1.0], {"a": 1.0}, {"b": 1.0}, {"a": None}, {"a": ()}, {1: 1.0}, {-1: 1.0}, {-2: 1.0},
    {"1": 1.0}, collections.OrderedDict(a=1.0), collections.OrderedDict(a=1.0, b=1.0),
    collections.OrderedDict(b=1.0, a=1.0), collections.defaultdict(int, a=1.0),
    *(Tagged(1.0, tag) for tag in (1, -1, -2, "1", (-1,), (-2,), frozenset({-1}), frozenset({-2}))),
)  # fmt: skip
UNLIKE_STATICS = (
    0, 1, -1, -2, "", "1", b"1", None, 0.5, 1j, (), (-1,), (-2,), ((-1,),), ((-2,),), Config(-1),
    Config(-2), Config(Config(-1)), Config(Config(-2)), Config((-1,)), Config((-2,)), Plain(),
    Plain(), frozenset(), frozenset({-1}), frozenset({-2}), Config(frozenset({-1})),
    Config(frozenset({-2})), jnp.sin, jnp.cos, np.float32, np.dtype("float32"), P(), P("a"),
    P(None),
)  # fmt: skip


@pytest.mark.parametrize(
    "calls",
    [
        lambda f: [functools.partial(f, each) for each in UNLIKE_ARGUMENTS],
        lambda f: [functools.partial(f, x=each) for each in UNLIKE_ARGUMENTS],
        lambda f: [functools.partial(f, 1.0, n=each) for each in UNLIKE_STATICS],
    ],
    ids=["by position", "by name", "static"],
)
def test_no_call_is_taken_for_an_earlier_one_that_is_unlike_it(
    calls: Callable[[Any], list[Call]],
) -> None:
    f = fresh(static_argnames="n")

    said = explained(*calls(f))

    assert len(said) + 1 == f._cache_size() == len(calls(f))
    assert not [lines for lines in said if "whose entry is gone" in lines[2]]


def test_sets_in_another_order_are_the_same_static_argument() -> None:
    f = fresh(static_argnames="n")
    calls = [lambda: f(1.0, n=frozenset((0, 8))), lambda: f(1.0, n=frozenset((8, 0)))]

    (said,) = explained(calls[0], f.clear_cache, calls[1])

    assert said[2] == "the same signature as an earlier call, whose entry is gone"


def test_only_the_metadata_is_named_after_it_changed_together_with_a_shape() -> None:
    f = fresh()
    calls = [Tagged(floats(size), tag) for size, tag in ((4, 1), (5, 2), (5, 1))]

    said = explained(*[functools.partial(f, call) for call in calls])

    named = [lines[2].partition(": was")[0] for lines in said]
    assert named == ["x: pytree structure", "x[<flat index 0>]: shape or dtype"]


def test_a_call_is_compared_with_an_earlier_call_of_the_same_placement() -> None:
    calls = [P(), P("a"), P(None)]
    f = fresh()

    *_, said = explained(*[functools.partial(f, place(floats(4, 4), spec)) for spec in calls])

    assert said[2] == ("x: sharding, same placement, spelled differently: was P(), now P(None,)")


def test_a_configuration_value_outside_the_signature_is_no_cause() -> None:
    if not hasattr(jax._src.config.config_ext, "trace_context_names"):
        pytest.skip("this release does not say which values are compared")
    f = fresh()

    def in_debugging() -> None:
        with jax.debug_infs(True):
            f(1.0)

    (said,) = explained(in_debugging, f.clear_cache, lambda: f(1.0))

    assert said[2] == "the same signature as an earlier call, whose entry is gone"


class Loud:
    """A static argument whose `repr` raises or is too long."""

    def __init__(self, text: Callable[[], str]) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text()


def raises() -> str:
    raise RuntimeError("no repr today")


@pytest.mark.parametrize(
    ("text", "shown"), [(raises, "<Loud>"), (lambda: "x" * 10_000_000, "x" * 120 + "...")]
)
def test_a_repr_that_raises_or_is_long_does_no_harm(text: Callable[[], str], shown: str) -> None:
    f = fresh(static_argnums=1)

    (said,) = explained(lambda: f(1.0, "first"), lambda: f(1.0, Loud(text)))

    assert said[2] == f"n: static argument: was 'first', now {shown}"


class Shy:
    """A static argument whose attributes cannot be read."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "<shy>"

    @property
    def __dict__(self) -> dict[str, Any]:
        raise RuntimeError("not today")


def test_attributes_that_cannot_be_read_do_no_harm() -> None:
    f = fresh(static_argnums=1)
    first, second = Shy(), Shy()

    (said,) = explained(lambda: f(1.0, first), lambda: f(1.0, second))

    assert said[2] == "n: static argument: was another object that prints alike, now <shy>"


def test_after_sixty_four_signatures_the_oldest_is_forgotten_and_the_message_says_so() -> None:
    f = fresh(static_argnums=1)
    calls = [functools.partial(f, 1.0, str(n)) for n in range(66)]

    said = explained(*calls)

    assert len(said) == 65
    assert not any("forgotten" in line for line in said[62])
    assert said[-1][4] == "the last 64 signatures were compared, 2 older ones are forgotten"
