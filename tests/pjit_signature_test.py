"""Our `pjit`: it has stock's signature and result type, and the Python function stays reachable."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import inspect
from typing import Any

import jax
import pytest
from jax._src import tree_util
from jax._src.interpreters import pxla
from jaxlib import _jax, _pjit

import reproduction
from reproduction import next_key

PARAMETERS = (
    "function_name", "fun", "cache_miss", "static_argnums", "static_argnames",
    "global_cache_key", "pytree_registry", "shard_arg_fallback", "cache",
)  # fmt: skip


def arguments(fun: Any) -> dict[str, Any]:
    """The arguments that jax itself passes for a jitted `next_key`."""
    cache_miss = jax.jit(lambda key: next_key(key))._cache_miss.__wrapped__
    return dict(zip(PARAMETERS, (
        "step", fun, cache_miss, [], [], pxla.JitGlobalCppCacheKeys(),
        tree_util.dispatch_registry, pxla.cc_shard_arg, None,
    )))  # fmt: skip


def call_positionally(given: dict[str, Any]) -> Any:
    return _jax.pjit(*given.values())


def call_without_cache(given: dict[str, Any]) -> Any:
    return _jax.pjit(*list(given.values())[:-1])


def call_by_keyword(given: dict[str, Any]) -> Any:
    return _jax.pjit(**given)


def call_half_by_keyword(given: dict[str, Any]) -> Any:
    positional = list(given.values())[:2]
    return _jax.pjit(*positional, **dict(list(given.items())[:1:-1]))


each_call = pytest.mark.parametrize(
    "call", [call_positionally, call_without_cache, call_by_keyword, call_half_by_keyword]
)
each_fun = pytest.mark.parametrize("fun", [next_key, None], ids=["fun", "no fun"])


@each_call
@each_fun
def test_a_function_made_by_pjit_itself_has_the_fix(call: Any, fun: Any) -> None:
    f = call(arguments(fun))
    key = reproduction.SECTION_1[0].make("threefry2x32")

    run = reproduction.call_back(f, [], key, 3)

    assert (run.outcome, run.entries) == ("ok", [1, 1, 1])


def test_the_result_is_of_the_stock_type() -> None:
    assert type(call_positionally(arguments(next_key))) is type(jax.jit(next_key))


def test_wrapped_is_the_python_dispatch_function() -> None:
    given = arguments(next_key)

    f = call_positionally(given)

    assert f._cache_miss.__wrapped__ is given["cache_miss"]


def test_the_dispatch_function_is_not_a_python_function() -> None:
    assert not inspect.isfunction(jax.jit(next_key)._cache_miss)


@pytest.mark.parametrize("missing", ["cache_miss", "pytree_registry"])
def test_a_missing_argument_is_a_type_error(missing: str) -> None:
    given = arguments(next_key)
    del given[missing]

    with pytest.raises(TypeError):
        _jax.pjit(**given)


def test_installing_twice_wraps_once() -> None:
    installed = _jax.pjit

    _pjit.install(_jax)

    assert _jax.pjit is installed


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_of_the_python_dispatch_function_is_unchanged(
    error: type[BaseException],
) -> None:
    raised = error("of the dispatch")

    def cache_miss(*args: Any, **kwargs: Any) -> Any:
        raise raised

    f = _jax.pjit(**(arguments(next_key) | {"cache_miss": cache_miss}))

    with pytest.raises(error) as caught:
        f(reproduction.keys("threefry2x32"))

    assert caught.value is raised
