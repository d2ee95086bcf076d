"""The advice of an explanation works: a program that follows it has no miss."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.experimental.layout
import jax.numpy as jnp
import jaxlib.pjit
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from explaining import floats, place
from reproduction import base_array, keys, mesh_of

mesh = mesh_of(4)
LAYOUTS = ("Format", "Layout", "DeviceLocalLayout")  # by release
NAMES = {
    "jax": jax,
    "jnp": jnp,
    "np": np,
    "mesh": mesh,
    "P": P,
    "NamedSharding": NamedSharding,
    "SingleDeviceSharding": SingleDeviceSharding,
    **{name: getattr(jax.experimental.layout, name, None) for name in LAYOUTS},
}


def advice_of(misses: list[jaxlib.pjit.Dispatch]) -> list[str]:
    return [difference.advice for miss in misses for difference in miss.differences]


def code_of(advice: str) -> str:
    """The code at the end of an advice."""
    return advice.partition(": ")[2]


def written(advice: str, **names: Any) -> Any:
    """The arguments after the code at the end of the advice ran."""
    return eval(code_of(advice), NAMES | names)


class Arguments(NamedTuple):
    """Two arguments of one function. The call with the second misses."""

    name: str
    says: str  # the advice, without its code
    first: Callable[[], Any]
    second: Callable[[], Any]


def on(spec: P, of: Mesh = mesh) -> Callable[[], jax.Array]:
    return lambda: jax.device_put(floats(4, 4), NamedSharding(of, spec))


def key_on(spec: P) -> Callable[[], jax.Array]:
    return lambda: place(keys("threefry2x32", (4, 4)), spec)


def raw_key() -> jax.Array:
    """A key whose base array has the spelling of the key's own sharding."""
    return jax.random.wrap_key_data(place(np.zeros((4, 4, 2), np.uint32), P("a")))


def raw_scalar_key() -> jax.Array:
    return jax.random.wrap_key_data(place(np.zeros(2, np.uint32), P()))


def scalar_key() -> jax.Array:
    return place(keys("threefry2x32"), P())


def key_on_device(index: int) -> Callable[[], jax.Array]:
    return lambda: jax.device_put(keys("threefry2x32"), jax.devices()[index])


def committed() -> jax.Array:
    return jax.device_put(floats(4), jax.devices()[0])


def on_one_device(spec: P) -> jax.Array:
    return jax.device_put(floats(4), NamedSharding(mesh_of(1), spec))


def weak() -> jax.Array:
    return jnp.asarray(1.0)


def strong() -> jax.Array:
    return jnp.asarray(1.0, jnp.float32)


def laid_out(order: tuple[int, int]) -> jax.Array:
    kind = NAMES["Layout" if jax.__version_info__ >= (0, 7) else "DeviceLocalLayout"]
    layout = NAMES["Format"](kind(order), SingleDeviceSharding(jax.devices()[0]))
    return jax.device_put(floats(4, 3), layout)


OTHER_MESH = Mesh(mesh.devices, ("a", "c"))
IN_EVERY_CALL = (
    Arguments("dtype", "give it one dtype in every call",
              lambda: floats(3), lambda: floats(3).astype(np.int32)),
    Arguments("type of a scalar", "pass one type in every call", lambda: 1.0, lambda: 1),
    Arguments("dtype, the wider one later", "give it one dtype in every call",
              lambda: floats(3).astype(np.int32), lambda: np.full(3, 0.5, np.float32)),
    Arguments("a wider scalar later", "pass one type in every call", lambda: 1, lambda: 0.5),
    Arguments("a complex number later", "pass one type in every call", lambda: 0.5, lambda: 2j),
    Arguments("true where 1 was", "pass one type in every call", lambda: 1, lambda: True),
    Arguments("1 where true was", "pass one type in every call", lambda: True, lambda: 2),
    Arguments("a float where an array of integers was", "pass an array in every call",
              lambda: jnp.asarray(1, jnp.int32), lambda: 0.5),
    Arguments("a float where a weak integer was", "pass an array in every call",
              lambda: jnp.asarray(1), lambda: 0.5),
    Arguments("an integer where a weak array was", "pass an array in every call", weak, lambda: 2),
    Arguments("a float where an array was", "pass an array in every call", strong, lambda: 1.0),
    Arguments("an array where a float was", "pass an array in every call", lambda: 1.0, strong),
    Arguments("a float where a weak array was", "pass an array in every call",
              weak, lambda: 1.0),
    Arguments("a numpy array where one of jax's was", "pass an array in every call",
              lambda: jnp.ones(4), lambda: floats(4)),
    Arguments("a numpy array where a placed one was", "place it in every call",
              on(P("a")), lambda: floats(4, 4)),
    Arguments("weakly typed", "give it a dtype in every call", strong, weak),
    Arguments("strongly typed", "give it a dtype in every call", weak, strong),
    Arguments("committed", "commit it in every call", lambda: jnp.ones(4), committed),
    Arguments("uncommitted", "commit it in every call", committed, lambda: jnp.ones(4)),
    Arguments("placed otherwise", "place it as in the earlier call", on(P("a")), on(P("b"))),
    Arguments("placed on the mesh", "place it so from the first call on",
              lambda: jnp.ones((4, 4)), on(P("b"))),
    Arguments("spelled otherwise", "place it as in the earlier call", on(P("a")), on(P("a", None))),
    Arguments("a key spelled otherwise", "place it so in every call",
              key_on(P("a")), key_on(P("a", None))),
    Arguments("a key spelled shorter", "place it so in every call",
              key_on(P("a", None)), key_on(P("a"))),
    Arguments("a key made of raw data first", "place it so in every call", raw_key, key_on(P("a"))),
    Arguments("a key made of raw data", "place it so in every call",
              key_on(P("a")), raw_key),
    Arguments("a scalar key made of raw data first", "place it so in every call",
              raw_scalar_key, scalar_key),
    Arguments("a scalar key made of raw data", "place it so in every call",
              scalar_key, raw_scalar_key),
    Arguments("a key placed otherwise than one made of raw data", "place it as in the earlier call",
              raw_scalar_key, key_on_device(1)),
    Arguments("a key on another device", "place it as in the earlier call",
              key_on_device(0), key_on_device(1)),
    Arguments("one device, then its mesh", "place it as in the earlier call",
              committed, lambda: on_one_device(P())),
    Arguments("a mesh, then its one device", "place it as in the earlier call",
              lambda: on_one_device(P()), committed),
    Arguments("laid out otherwise", "give it one layout in every call",
              lambda: laid_out((0, 1)), lambda: laid_out((1, 0))),
)  # fmt: skip


@pytest.mark.parametrize("arguments", IN_EVERY_CALL, ids=lambda arguments: arguments.name)
def test_an_argument_that_is_made_as_advised_in_every_call_has_its_value_and_no_miss(
    arguments: Arguments,
) -> None:
    if arguments.name == "laid out otherwise" and NAMES["Format"] is None:
        pytest.skip("this release has no Format")
    calls = arguments.first, arguments.second
    step = jax.jit(lambda x: x)
    with jaxlib.pjit.explain() as misses:
        for make in calls:
            step(make())
    (advice,) = advice_of(misses)
    assert advice.partition(": ")[0] == arguments.says

    advised = jax.jit(lambda x: x)
    with jaxlib.pjit.explain() as misses:
        for make in calls:
            x = make()
            result = advised(written(advice, x=x))
            assert np.array_equal(np.asarray(base_array(result)), np.asarray(base_array(x)))

    assert [str(miss) for miss in misses] == []


def test_dtypes_that_jax_does_not_promote_keep_an_entry_each() -> None:
    step = jax.jit(lambda x: x)
    with jaxlib.pjit.explain() as misses:
        step(np.ones(3, jnp.float8_e5m2)), step(floats(3))

    assert advice_of(misses) == [EACH]


def test_an_argument_of_another_shape_and_dtype_is_padded_in_one_dtype() -> None:
    step = jax.jit(lambda x: x)
    with jaxlib.pjit.explain() as misses:
        step(floats(4)), step(floats(3).astype(np.int32))

    assert advice_of(misses) == [
        "pad it to (4,) in every call, as here where it is (3,): "
        "jnp.pad(jnp.asarray(x, 'float32'), [(0, 1)])"
    ]


def test_an_argument_on_the_mesh_that_is_named_has_no_miss() -> None:
    step = jax.jit(lambda x: x)
    with jaxlib.pjit.explain() as misses:
        step(on(P("a"))()), step(on(P("a"), OTHER_MESH)())
    (advice,) = advice_of(misses)
    assert advice == (
        "place it as in the earlier call: jax.device_put(x, NamedSharding(mesh, P('a',))), "
        "with mesh = Mesh('a': 2, 'b': 2)"
    )

    advised = jax.jit(lambda x: x)
    with jaxlib.pjit.explain() as misses:
        for x in (on(P("a"))(), on(P("a"), OTHER_MESH)()):
            advised(written(advice.partition(", with")[0], x=x))

    assert misses == []


@pytest.mark.parametrize("shapes", [[(8, 3), (5, 3)], [(5, 3), (8, 3)]])
def test_the_smaller_of_two_shapes_is_padded_as_advised(shapes: list[tuple[int, int]]) -> None:
    step = jax.jit(lambda x: x)
    with jaxlib.pjit.explain() as misses:
        for shape in shapes:
            step(floats(*shape))
    (advice,) = advice_of(misses)
    assert advice == (
        "pad it to (8, 3) in every call, as here where it is (5, 3): jnp.pad(x, [(0, 3), (0, 0)])"
    )

    advised = jax.jit(lambda x: x)
    with jaxlib.pjit.explain() as misses:
        for shape in shapes:
            x = floats(*shape)
            advised(jnp.asarray(x) if shape == (8, 3) else written(advice, x=x))

    assert misses == []


def test_arguments_in_several_placements_are_all_placed_as_in_the_first_call() -> None:
    jitted = jax.jit(lambda x: x)

    with jaxlib.pjit.explain() as misses:
        for spec in (P("a"), P("b"), P(None, "a")):
            jitted(place(floats(4, 4), spec))

    advice = "place it as in the earlier call: jax.device_put(x, NamedSharding(mesh, P('a',)))"
    assert advice_of(misses) == [advice] * 2


def test_several_differences_have_a_remedy_each_which_together_leave_no_miss() -> None:
    def calls(step: Any, remade: Callable[[str, Any], Any]) -> None:
        step(
            remade("params", jnp.ones(3)), remade("batch", jnp.ones((8, 3))), remade("lr", strong())
        )
        step(remade("params", jax.device_put(jnp.ones(3), jax.devices()[0])),
             remade("batch", floats(5, 3)), remade("lr", 0.1))  # fmt: skip

    with jaxlib.pjit.explain() as misses:
        calls(jax.jit(lambda params, batch, lr: batch.sum()), lambda name, value: value)
    (miss,) = misses
    advice = {difference.path: difference.advice for difference in miss.differences}
    assert [*advice] == ["batch", "lr", "params"]

    with jaxlib.pjit.explain() as misses:
        calls(
            jax.jit(lambda params, batch, lr: batch.sum()),
            lambda name, value: (
                value if np.shape(value) == (8, 3) else written(advice[name], **{name: value})
            ),
        )

    assert misses == []


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float


class Activation:
    def __call__(self, x: Any) -> Any:
        return x


class EqualActivation(Activation):
    def __eq__(self, other: object) -> bool:
        return type(other) is EqualActivation

    def __hash__(self) -> int:
        return 1


class Tagged:
    def __init__(self, x: Any, tag: Any) -> None:
        self.x, self.tag = x, tag


jax.tree_util.register_pytree_node(
    Tagged, lambda node: ((node.x,), node.tag), lambda tag, leaves: Tagged(*leaves, tag)
)


class Counted:
    """Like `Tagged`, but the tag is a leaf."""

    def __init__(self, x: Any, tag: Any) -> None:
        self.x, self.tag = x, tag


jax.tree_util.register_pytree_node(
    Counted, lambda node: ((node.x, node.tag), None), lambda _, leaves: Counted(*leaves)
)


class Rewritten(NamedTuple):
    """A program that misses, its advice, and the program that follows it."""

    name: str
    advice: str
    missing: Callable[[], None]
    advised: Callable[[], None]


def anew(step: Any) -> Any:
    """A new function without an earlier call."""
    return types.FunctionType(
        step.__code__, step.__globals__, step.__name__, step.__defaults__, step.__closure__
    )


def calls(step: Any, *arguments: tuple[Any, ...], **options: Any) -> Callable[[], None]:
    def program() -> None:
        jitted = jax.jit(anew(step), **options)
        for each in arguments:
            jitted(*each)

    return program


def scaled(x: Any, n: Any) -> Any:
    return x * n


def applied(x: Any, act: Any) -> Any:
    return act(x)


def identity(x: Any) -> Any:
    return x


def by_name(**options: Any) -> Callable[[], None]:
    def program() -> None:
        jitted = jax.jit(anew(scaled), **options)
        jitted(1.0, 2), jitted(1.0, n=2)

    return program


STATIC_N = {"static_argnums": 1, "static_argnames": "n"}


def with_default(n: bool) -> Callable[[], None]:
    def program() -> None:
        jitted = jax.jit(lambda x, n=2: x * n, static_argnames="n")
        jitted(1.0, **({"n": 2} if n else {})), jitted(1.0, n=2)

    return program


def clearing(is_cleared: bool) -> Callable[[], None]:
    def program() -> None:
        jitted = jax.jit(lambda x: x)
        jitted(1.0)
        if is_cleared:
            jitted.clear_cache()
        jitted(1.0)

    return program


def precision(before: bool) -> Callable[[], None]:
    def program() -> None:
        jitted = jax.jit(lambda x: x)
        had = jax.config.jax_default_matmul_precision
        try:
            if before:
                exec(code_of(SET_PRECISION), NAMES)
            jitted(1.0)
            jax.config.update("jax_default_matmul_precision", "float32")
            jitted(1.0)
        finally:
            jax.config.update("jax_default_matmul_precision", had)

    return program


ANEW = "each value is compiled again: unless it sets a shape, "
ONCE = "make it once, outside the loop"
EACH = "each has an entry of its own: call it once with each before the loop"
ONE_WAY = "pass it by position in every call, or by name in every call"
SAME_KEYS = "pass the same keys and as many elements in every call"
SET_PRECISION = (
    "set it before the first call: jax.config.update('jax_default_matmul_precision', 'float32')"
)
ACT = Activation()
ACT_ONCE = functools.partial(jnp.maximum, 0.0)
REWRITTEN = (
    Rewritten("a static number", f"{ANEW}pass it as an argument that is not static: jnp.asarray(3)",
              calls(scaled, (1.0, 2), (1.0, 3), static_argnums=1),
              calls(scaled, (1.0, jnp.asarray(2)), (1.0, jnp.asarray(3)))),
    Rewritten("a field of a static object",
              f"{ANEW}pass it as an argument that is not static: jnp.asarray(0.5)",
              calls(lambda x, c: x * c.rate, (1.0, Config(0.1)), (1.0, Config(0.5)),
                    static_argnums=1),
              calls(scaled, (1.0, jnp.asarray(0.1)), (1.0, jnp.asarray(0.5)))),
    Rewritten("a lambda made again", ONCE,
              calls(applied, (1.0, lambda x: x), (1.0, lambda x: x), static_argnums=1),
              calls(applied, (1.0, identity), (1.0, identity), static_argnums=1)),
    Rewritten("a partial made again", ONCE,
              calls(applied, (1.0, functools.partial(jnp.maximum, 0.0)),
                    (1.0, functools.partial(jnp.maximum, 0.0)), static_argnums=1),
              calls(applied, (1.0, ACT_ONCE), (1.0, ACT_ONCE), static_argnums=1)),
    Rewritten("an object made again, made once",
              f"{ONCE}, or give Activation `__eq__` and `__hash__`",
              calls(applied, (1.0, Activation()), (1.0, Activation()), static_argnums=1),
              calls(applied, (1.0, ACT), (1.0, ACT), static_argnums=1)),
    Rewritten("an object made again, given __eq__",
              f"{ONCE}, or give Activation `__eq__` and `__hash__`",
              calls(applied, (1.0, Activation()), (1.0, Activation()), static_argnums=1),
              calls(applied, (1.0, EqualActivation()), (1.0, EqualActivation()),
                    static_argnums=1)),
    Rewritten("a number in metadata",
              f"{ANEW}have it a leaf of the pytree, as an array: jnp.asarray(2)",
              calls(identity, (Tagged(1.0, 1),), (Tagged(1.0, 2),)),
              calls(identity, (Counted(1.0, jnp.asarray(1)),), (Counted(1.0, jnp.asarray(2)),))),
    Rewritten("a lambda in metadata", ONCE,
              calls(identity, (Tagged(1.0, lambda: 0),), (Tagged(1.0, lambda: 0),)),
              calls(identity, (Tagged(1.0, identity),), (Tagged(1.0, identity),))),
    Rewritten("a key too many", SAME_KEYS,
              calls(identity, ({"a": 1.0},), ({"a": 1.0, "b": 2.0},)),
              calls(identity, ({"a": 1.0, "b": 1.0},), ({"a": 1.0, "b": 2.0},))),
    Rewritten("another key", SAME_KEYS,
              calls(identity, ({"a": 1.0},), ({"b": 1.0},)),
              calls(identity, ({"a": 1.0},), ({"a": 1.0},))),
    Rewritten("an element too many", SAME_KEYS,
              calls(identity, ([1.0],), ([1.0, 2.0],)),
              calls(identity, ([1.0, 1.0],), ([1.0, 2.0],))),
    Rewritten("None where an array was", "pass an array in every call",
              calls(identity, ({"a": 1.0},), ({"a": None},)),
              calls(identity, ({"a": 1.0},), ({"a": 0.0},))),
    Rewritten("a tuple where a list was", "pass a list in every call: list(x)",
              calls(identity, ([1.0],), ((1.0,),)),
              calls(identity, ([1.0],), ([*(1.0,)],))),
    Rewritten("by name where it was by position", ONE_WAY,
              by_name(), calls(scaled, (1.0, 2), (1.0, 2))),
    Rewritten("static, by name where it was by position", ONE_WAY,
              by_name(**STATIC_N), calls(scaled, (1.0, 2), (1.0, 2), **STATIC_N)),
    Rewritten("not passed", "pass n in every call", with_default(False), with_default(True)),
    Rewritten("a cleared cache", "do not call clear_cache() or jax.clear_caches() between calls",
              clearing(True), clearing(False)),
    Rewritten("a setting", SET_PRECISION, precision(False), precision(True)),
)  # fmt: skip


@pytest.mark.parametrize("program", REWRITTEN, ids=lambda program: program.name)
def test_a_program_that_is_written_as_advised_has_no_miss(program: Rewritten) -> None:
    with jaxlib.pjit.explain() as misses:
        program.missing()
    assert advice_of(misses) == [program.advice]

    with jaxlib.pjit.explain() as misses:
        program.advised()

    assert [str(miss) for miss in misses] == []


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"static_argnums": 1}, [(1.0, "sum"), (1.0, "mean")]),
        ({}, [(floats(3), 1.0), (floats(3, 1), 1.0)]),
        ({}, [(1.0, 1.0), (floats(3), 1.0)]),
    ],
    ids=["static text", "rank", "an array where a scalar was"],
)
def test_a_call_before_the_loop_removes_the_miss_of_an_entry_of_its_own(
    options: dict[str, Any], arguments: list[tuple[Any, ...]]
) -> None:
    def step(x: Any, n: Any) -> Any:
        return x

    jitted = jax.jit(step, **options)
    with jaxlib.pjit.explain() as misses:
        for each in arguments:
            jitted(*each)
    assert advice_of(misses) == [EACH]

    with jaxlib.pjit.explain() as misses:
        for each in arguments * 3:
            jitted(*each)

    assert misses == []


def test_a_mesh_that_is_entered_before_the_first_call_makes_no_miss() -> None:
    if not hasattr(jax, "set_mesh"):
        pytest.skip("this release has no jax.set_mesh")

    def program(is_before: bool) -> list[str]:
        jitted = jax.jit(lambda x: x)
        with jaxlib.pjit.explain() as misses:
            if not is_before:
                jitted(1.0)
            with jax.set_mesh(mesh):
                jitted(1.0), jitted(1.0)
        return advice_of(misses)

    assert program(False) == ["enter the mesh once, before the first call"]
    assert program(True) == []
