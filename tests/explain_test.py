"""What is said of a call that missed the fastpath: the exact text, and when nothing is said."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import functools
import gc
import logging
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib.pjit
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib import _fastpath_history
from jaxlib._fastpath_signature import short_text

import interpreters
import placements
from paths import ROOT
from reproduction import keys, mesh_of, next_key
from time_limit import TIMEOUT_S

Call = Callable[[], Any]


def place(x: Any, spec: P) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh_of(4), spec))


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def told(misses: list[jaxlib.pjit.Dispatch]) -> list[list[str]]:
    """The lines of each miss, without what differs from run to run."""
    return [_told(str(miss)) for miss in misses]


def _told(text: str) -> list[str]:
    text = re.sub(r"\d+\.\d{3} ms", "T ms", text)
    text = re.sub(r"\S*explain_test\.py:\d+", "here", text)
    return [line.strip() for line in text.splitlines()]


def explained(*calls: Call) -> list[list[str]]:
    with jaxlib.pjit.explain() as misses:
        for call in calls:
            call()
    return told(misses)


class Program(NamedTuple):
    """Calls of one fresh jitted function, the last of which misses."""

    name: str
    options: dict[str, Any]
    calls: Callable[[Any], list[Call]]
    work: str  # what JAX did in the last call
    says: list[str]  # after the line that names the function


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


class Equal:
    """Its objects are equal, and have Python's own `repr`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1


def cleared(f: Any) -> list[Call]:
    return [lambda: f(1.0), lambda: (f.clear_cache(), f(1.0))]


def with_precision(f: Any) -> list[Call]:
    def set_and_call() -> None:
        with jax.default_matmul_precision("float32"):
            f(1.0)

    return [lambda: f(1.0), set_and_call]


def on_another_device(f: Any) -> list[Call]:
    def set_and_call() -> None:
        with jax.default_device(jax.devices()[1]):
            f(1.0)

    return [lambda: f(1.0), set_and_call]


def committed_later(f: Any) -> list[Call]:
    x = jnp.ones(4, jnp.float32)
    return [lambda: f(x), lambda: f(jax.device_put(x, jax.devices()[0]))]


def weak_later(f: Any) -> list[Call]:
    return [lambda: f(jnp.asarray(1.0, jnp.float32)), lambda: f(jnp.asarray(1.0))]


ALL = "traced, lowered, compiled"
ONLY_COMPILED = "not traced, lowered, compiled"
KEY = keys("threefry2x32")
NONE = "not traced, not lowered, not compiled"
PROGRAMS = (
    Program("pytree structure", {}, twice_of({"a": 1.0}, {"a": 1.0, "b": 2.0}), ALL, [
        "pytree structure: was without args[0]['b'], now with args[0]['b']",
        "to mend it: pass the same pytree structure in every call"]),
    Program("other containers", {}, twice_of([1.0], (1.0,)), ALL, [
        "pytree structure: was PyTreeDef([*]), now PyTreeDef((*,))",
        "to mend it: pass the same pytree structure in every call"]),
    Program("static argument", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, "short"), lambda: f(1.0, "x" * 200)], ALL, [
        f"args[1]: static argument: was 'short', now '{'x' * 119}...",
        "to mend it: each value has an entry of its own; pass what varies as an array"]),
    Program("static argument by name", {"static_argnames": "n"},
            lambda f: [lambda: f(1.0), lambda: f(1.0, n=2)], ALL, [
        "kwargs['n']: static argument: was not passed, now 2",
        "to mend it: each value has an entry of its own; pass what varies as an array"]),
    Program("shape", {}, twice_of({"x": [floats(3)]}, {"x": [floats(4)]}), ALL, [
        "args[0]['x'][0]: shape or dtype: was float32[3], now float32[4]",
        "to mend it: each shape and dtype has an entry of its own; pad, or cast, to few"]),
    Program("dtype", {}, twice_of(floats(3), floats(3).astype(np.int32)), ALL, [
        "args[0]: shape or dtype: was float32[3], now int32[3]",
        "to mend it: each shape and dtype has an entry of its own; pad, or cast, to few"]),
    Program("a key where an array was", {}, twice_of(floats(2).astype(np.uint32), KEY), ALL, [
        "pytree structure: was with args[0], now with args[0] (base array)",
        "to mend it: pass the same pytree structure in every call"]),
    Program("a key of another kind", {}, twice_of(KEY, keys("rbg")), ALL, [
        "pytree structure: was ...eeDef(CustomNode(PRNGKeyArray[fry], [*])), "
        "now ...eeDef(CustomNode(PRNGKeyArray[rbg], [*]))",
        "to mend it: pass the same pytree structure in every call"]),
    Program("an array where a float was", {}, twice_of(1.0, floats()), ALL, [
        "args[0]: type of the argument: was float, now float32[]",
        "to mend it: pass the same type of value in every call"]),
    Program("type of a scalar", {}, twice_of(1.0, 1), ALL, [
        "args[0]: type of the argument: was float, now int",
        "to mend it: pass the same type of value in every call"]),
    Program("weak type", {}, weak_later, ALL, [
        "args[0]: weak type: was strongly typed, now weakly typed",
        "to mend it: give it a dtype before the call: jnp.asarray(x, dtype)"]),
    Program("committed or not", {}, committed_later, ONLY_COMPILED, [
        "args[0]: committed or not: was uncommitted, now committed",
        "to mend it: place it with jax.device_put before the first call, too"]),
    Program("different placement", {}, placed_twice(P("a"), P("b")),
            ONLY_COMPILED, [
        "args[0]: sharding, different placement: was P('a',), now P('b',)",
        "to mend it: place it as in the earlier call, with jax.device_put"]),
    Program("spelled differently", {}, placed_twice(P("a"), P("a", None)), NONE, [
        "args[0]: sharding, same placement, spelled differently: was P('a',), now P('a', None)",
        "to mend it: write P('a',) for it wherever it is placed"]),
    Program("a key spelled differently", {},
            lambda f: [lambda: f(place(keys("threefry2x32", (4, 4)), P("a"))),
                       lambda: f(place(keys("threefry2x32", (4, 4)), P("a", None)))], NONE, [
        "args[0] (base array): sharding, same placement, spelled differently: "
        "was P('a', None), now P('a', None, None)",
        "to mend it: place it with jax.device_put and one sharding, wherever it is made"]),
    Program("metadata of a node", {}, twice_of({"a": 1.0}, {"b": 1.0}), ALL, [
        "pytree structure: was with args[0]['a'], now with args[0]['b']",
        "to mend it: pass the same pytree structure in every call"]),
    Program("static argument by position, then by name",
            {"static_argnums": 1, "static_argnames": "n"},
            lambda f: [lambda: f(1.0, 2), lambda: f(1.0, n=2)], ALL, [
        "kwargs['n']: static argument: was not passed, now 2",
        "args[1]: static argument: was 2, now not passed",
        "to mend it: pass it by position in every call, or by name in every call"]),
    Program("tuples of one hash", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, (0, -1)), lambda: f(1.0, (0, -2))], ALL, [
        "args[1]: static argument: was (0, -1), now (0, -2)",
        "to mend it: each value has an entry of its own; pass what varies as an array"]),
    Program("equal floats that print otherwise", {"static_argnums": 1},
            lambda f: [lambda: f(floats(3), 0.0), lambda: f(floats(4), -0.0)], ALL, [
        "args[0]: shape or dtype: was float32[3], now float32[4]",
        "to mend it: each shape and dtype has an entry of its own; pad, or cast, to few"]),
    Program("metadata that is shown alike", {},
            lambda f: [lambda: f(Tagged(1.0, lambda: 0)), lambda: f(Tagged(1.0, lambda: 0))], ALL, [
        "pytree structure: was another that is shown alike, "
        "now PyTreeDef(CustomNode(Tagged[<function <lambda>.<lo",
        "to mend it: pass the same pytree structure in every call"]),
    Program("static arguments of one hash", {"static_argnums": 1},
            lambda f: [lambda: f(1.0, -1), lambda: f(1.0, -2)], ALL, [
        "args[1]: static argument: was -1, now -2",
        "to mend it: each value has an entry of its own; pass what varies as an array"]),
    Program("jit configuration", {}, with_precision, ALL, [
        "jax_default_matmul_precision: jit configuration: was None, now float32",
        "to mend it: set it once, before the first call"]),
    Program("jit configuration that is no simple value", {}, on_another_device, ALL, [
        f"jax_default_device: jit configuration: was None, now {jax.devices()[1]!r}",
        "to mend it: set it once, before the first call"]),
    Program("another order of the devices", {},
            lambda f: [lambda: f(jax.device_put(floats(4), placements.of_mesh(P("a"))())),
                       lambda: f(jax.device_put(floats(4), placements.of_mesh(
                           P("a"), order=(3, 2, 1, 0))()))],
            "not traced, not lowered, compiled", [
        "args[0]: sharding, different placement: was P('a',) on devices 0, 1, 2, 3, "
        "now P('a',) on devices 3, 2, 1, 0",
        "to mend it: place it as in the earlier call, with jax.device_put"]),
    Program("one device or its mesh", {},
            lambda f: [lambda: f(jax.device_put(floats(4), jax.devices()[0])),
                       lambda: f(jax.device_put(floats(4), placements.of_mesh(P(), (1, 1))()))],
            ALL, [
        "args[0]: sharding, same placement, of another type: "
        f"was {short_text(jax.sharding.SingleDeviceSharding(jax.devices()[0]))}, now P()",
        "to mend it: place it with one sharding in every call"]),
    Program("equal static arguments that print otherwise", {"static_argnums": 1},
            lambda f: [lambda: f(floats(3), Equal()), lambda: f(floats(4), Equal())], ALL, [
        "args[0]: shape or dtype: was float32[3], now float32[4]",
        "to mend it: each shape and dtype has an entry of its own; pad, or cast, to few"]),
    Program("numpy's types, which are one to the fastpath", {},
            twice_of((np.float32(1), floats(3)), (floats(), floats(4))), ALL, [
        "args[0][1]: shape or dtype: was float32[3], now float32[4]",
        "to mend it: each shape and dtype has an entry of its own; pad, or cast, to few"]),
    Program("an entry that is gone", {}, cleared, ALL, [
        "the same signature as an earlier call, whose entry is gone",
        "to mend it: its entry was evicted, or cleared, or went with the function that had it: "
        "keep that alive, and clear no caches in a loop"]),
)  # fmt: skip


def fresh(**options: Any) -> Any:
    def step(x: Any, n: Any = None) -> Any:
        return x

    return jax.jit(step, **options)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_miss_says_what_differs_and_what_to_do(program: Program) -> None:
    calls = program.calls(fresh(**program.options))

    (said,) = explained(*calls)

    work, *rest = said
    assert re.search(r"costing T ms \((.*)\) because:$", work)[1] == program.work
    entry = 1 if program.calls is cleared else 2
    assert rest == [f"for step defined at here, entry {entry}", *program.says]


def with_callback(x: Any) -> Any:
    jax.debug.callback(lambda _: None, x)
    return x


def test_a_function_with_a_callback_is_said_never_to_take_the_fastpath() -> None:
    f = jax.jit(with_callback)

    said = explained(*[lambda: f(1.0)] * 3)

    assert [lines[1:] for lines in said] == [[
        "for with_callback defined at here, which never takes the fastpath: "
        "it has host callbacks or other effects",
        "to mend it: leave the callback out of the step where speed matters",
    ]] * 2  # fmt: skip


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this release has no jax.new_ref")
def test_a_function_of_mutable_refs_is_said_never_to_take_the_fastpath() -> None:
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
        "to mend it: commit it with jax.device_put(x, sharding)",
    ]


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


def test_a_fed_back_key_without_the_rule_is_told_apart_by_its_spelling(
    without_the_rule: None,
) -> None:
    said = explained(*feed_back(jax.jit(train_step), 4))

    if jax.__version_info__ >= (0, 11):
        assert said == []  # a scalar key is right there without the rule
        return
    assert [lines[1:] for lines in said] == [[
        "for train_step defined at here, entry 2",
        "args[0]['rng'] (base array): sharding, same placement, spelled differently: "
        "was P(None,), now P()",
        "to mend it: switch this wheel's rule on: JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=1",
    ]]  # fmt: skip


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="a scalar key is right there")
@pytest.mark.parametrize("page", ["README.md", "docs/explaining_misses.md"])
def test_the_transcript_is_what_the_example_gets(page: str) -> None:
    example = ROOT / "docs" / "examples" / "train.py"

    done = interpreters.run(
        [str(example)],
        settings={"JAX_EXPLAIN_CACHE_MISSES": "1", "JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "0"},
        devices=2,
        cwd=ROOT,
    )

    said = re.sub(r"\d+\.\d{3} ms", "0.846 ms", done.stderr)
    said = re.search(r"FASTPATH.*\n( .*\n)+", said)[0]
    assert f"docs/examples/train.py\n{said}```" in (ROOT / page).read_text()


def test_a_fed_back_key_with_the_rule_has_no_miss() -> None:
    f = jax.jit(train_step)
    calls = feed_back(f, 4)

    with jaxlib.pjit.assert_no_misses():
        for call in calls:
            call()


def test_assert_no_misses_raises_what_is_to_be_said() -> None:
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
        "to mend it: explain from the function's first call on",
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


def mendable() -> tuple[Call, Call]:
    """A function that raises, and what makes it do so no more."""
    faults = ["not today"]

    def step(x: Any) -> Any:
        if faults:
            raise ValueError(faults[0])
        return x

    return step, faults.clear


def first_call_after_one_that_raised() -> None:
    step, mend = mendable()
    f = jax.jit(step)
    with pytest.raises(ValueError, match="not today"):
        f(1.0)
    mend()
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
def test_nothing_is_said_where_there_is_no_miss(program: Call) -> None:
    assert explained(program) == []


def test_an_entry_that_a_call_that_raised_left_is_named_once(
    flag: None, caplog: pytest.LogCaptureFixture
) -> None:
    step, mend = mendable()
    f = jax.jit(step)

    with pytest.raises(ValueError, match="not today"):
        f(1.0)
    mend()
    for _ in range(4):
        f(1.0)

    (record,) = records_of(caplog)
    assert _told(record.getMessage())[1:] == [
        "for step defined at here, which never takes the fastpath: "
        "an earlier call like it raised, and its entry was never filled",
        "to mend it: call clear_cache() of the jitted function after an error",
    ]


def test_metadata_alone_is_named_after_it_changed_with_a_shape() -> None:
    f = fresh()
    calls = [Tagged(floats(size), tag) for size, tag in ((4, 1), (5, 2), (5, 1))]

    said = explained(*[functools.partial(f, call) for call in calls])

    named = [lines[2].split(":")[0] for lines in said]
    assert named == ["pytree structure", "args[0][<flat index 0>]"]


def test_an_entry_that_a_call_that_raised_left_is_named_if_jitted_anew() -> None:
    step, mend = mendable()

    with pytest.raises(ValueError, match="not today"):
        explained(lambda: jax.jit(step)(1.0))
    mend()

    said = explained(*[lambda: jax.jit(step)(1.0)] * 3)

    assert {lines[1].rpartition(": ")[2] for lines in said} == {
        "an earlier call like it raised, and its entry was never filled"
    }


def test_of_earlier_calls_the_one_that_is_placed_alike_is_compared_with() -> None:
    calls = [P(), P("a"), P(None)]
    f = fresh()

    *_, said = explained(*[functools.partial(f, place(floats(4, 4), spec)) for spec in calls])

    assert said[2] == (
        "args[0]: sharding, same placement, spelled differently: was P(), now P(None,)"
    )


def test_a_configuration_value_that_is_not_compared_is_no_cause() -> None:
    if not hasattr(jax._src.config.config_ext, "trace_context_names"):
        pytest.skip("this release does not say which values are compared")
    f = fresh()

    def in_debugging() -> None:
        with jax.debug_infs(True):
            f(1.0)

    (said,) = explained(in_debugging, f.clear_cache, lambda: f(1.0))

    assert said[2] == "the same signature as an earlier call, whose entry is gone"


class Loud:
    """A static argument whose `repr` is no help."""

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

    assert said[2] == f"args[1]: static argument: was 'first', now {shown}"


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


def test_of_sixty_four_signatures_the_oldest_is_forgotten_and_that_is_said() -> None:
    f = fresh(static_argnums=1)
    calls = [functools.partial(f, 1.0, n) for n in range(66)]

    said = explained(*calls)

    assert len(said) == 65
    assert not any("forgotten" in line for line in said[62])
    assert said[-1][3] == "the last 64 signatures were compared, 2 older ones are forgotten"


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


def test_a_first_dispatch_reads_as_one() -> None:
    with jaxlib.pjit.dispatches() as found:
        fresh()(1.0)

    assert told(found) == [[
        "FIRST DISPATCH at here (test_a_first_dispatch_reads_as_one) costing T ms "
        "(traced, lowered, compiled)",
        "for step defined at here, entry 1",
    ]]  # fmt: skip


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


def test_a_nested_dispatch_has_its_own_work() -> None:
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


@pytest.fixture
def flag() -> Iterator[None]:
    jax.config.update("jax_explain_cache_misses", True)
    yield
    jax.config.update("jax_explain_cache_misses", False)


def test_a_deleted_argument_raises_what_it_raises_without_an_explanation() -> None:
    f = fresh()
    x = jnp.ones(3)
    x.delete()

    with pytest.raises(RuntimeError, match="deleted"):
        explained(lambda: f(x))


def test_a_subclass_of_a_numpy_array_is_an_array() -> None:
    f = fresh()
    special = floats(2).view(type("Special", (np.ndarray,), {}))

    said = explained(lambda: f(special), lambda: f(special))

    assert said == []


class Locked:
    """A pytree whose flatten takes a lock of the user's."""

    lock = threading.Lock()


jax.tree_util.register_pytree_node(
    Locked, lambda _: (Locked.lock.acquire(), Locked.lock.release(), ((1.0,), None))[2],
    lambda aux, children: Locked(),
)  # fmt: skip


def test_code_of_the_users_runs_under_no_lock_of_ours() -> None:
    f, g = fresh(), jax.jit(lambda locked: 1.0)
    thread = threading.Thread(target=lambda: g(Locked()), daemon=True)

    with jaxlib.pjit.explain():
        with Locked.lock:
            thread.start()
            f(1.0)
        thread.join(timeout=TIMEOUT_S)

    assert not thread.is_alive()


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "jaxlib.pjit"]


def test_jaxs_own_flag_logs_one_warning_a_miss(
    flag: None, caplog: pytest.LogCaptureFixture
) -> None:
    f = fresh()
    first, second = (place(floats(4, 4), spec) for spec in (P("a"), P("a", None)))

    for x in (first, first, second, second, first):
        f(x)

    (record,) = records_of(caplog)
    assert record.levelno == logging.WARNING
    assert _told(record.getMessage())[1:3] == [
        "for step defined at here, entry 2",
        "args[0]: sharding, same placement, spelled differently: was P('a',), now P('a', None)",
    ]


def test_what_jax_explains_itself_is_not_logged_again(
    flag: None, caplog: pytest.LogCaptureFixture
) -> None:
    f = fresh()

    f(1.0)
    f(1)

    assert records_of(caplog) == []


def test_what_never_takes_the_fastpath_is_logged_once(
    flag: None, caplog: pytest.LogCaptureFixture
) -> None:
    f = jax.jit(lambda x: with_callback(x))

    for _ in range(5):
        f(1.0)

    assert len(records_of(caplog)) == 1


def test_without_the_flag_nothing_is_logged_and_nothing_is_noted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    f = fresh()
    before = dict(_fastpath_history._histories)

    f(1.0)
    f(1)

    assert records_of(caplog) == []
    assert _fastpath_history._histories == before
