"""The place where a function is defined and the place of its call: the user's own lines."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib.pjit
import pytest

from libraries import imported

HERE = "tests/origin_test.py"


def dispatches_of(call: Callable[[], Any]) -> list[jaxlib.pjit.Dispatch]:
    with jaxlib.pjit.dispatches() as found:
        call()
    return found


def line_of(function: FunctionType) -> str:
    code = inspect.unwrap(function).__code__
    path = Path(code.co_filename)
    is_here = path.is_relative_to(Path.cwd())
    return f"{path.relative_to(Path.cwd()) if is_here else path}:{code.co_firstlineno}"


def step(x: Any, scale: Any = 2) -> Any:
    return x * scale


def model(y: Any = None) -> None:
    numpyro = imported("numpyro")
    mean = numpyro.sample("mean", numpyro.distributions.Normal(0, 1))
    numpyro.sample("y", numpyro.distributions.Normal(mean, 1), obs=y)


class Layer:
    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def method(self, x: Any) -> Any:
        return x + 1


class Double(Layer):
    def forward(self, x: Any) -> Any:
        return x * 2


def logged(function: Callable) -> Callable:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def with_equinox(x: Any) -> None:
    imported("equinox").filter_jit(step)(x)


def with_an_equinox_module(x: Any) -> None:
    equinox = imported("equinox")

    class Model(equinox.Module):
        w: Any
        __call__ = step_of_a_model

    equinox.filter_jit(Model(x))(x)


def step_of_a_model(self: Any, x: Any) -> Any:
    return self.w * x


def with_flax_nnx(x: Any) -> None:
    imported("flax.nnx").jit(step)(x)


def with_numpyro_svi(x: Any) -> None:
    imported("numpyro")
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    svi = SVI(model, AutoNormal(model), Adam(0.1), Trace_ELBO())
    state = svi.init(jax.random.key(0), x)
    jax.jit(svi.update)(state, x)


class Wrapped(NamedTuple):
    """A call of a function that was jitted in some way."""

    name: str  # of the row
    line: str  # of its definition
    call: Callable[[Any], Any]


WRAPPED = (
    Wrapped("step", line_of(step), lambda x: jax.jit(step)(x)),
    Wrapped("step", line_of(step), lambda x: jax.jit(functools.partial(step, scale=3))(x)),
    Wrapped("step", line_of(step), lambda x: jax.jit(functools.partial(logged(logged(step))))(x)),
    Wrapped("step", line_of(step), lambda x: jax.jit(jax.vmap(step))(x)),
    Wrapped("step", line_of(step), lambda x: jax.jit(jax.checkpoint(step))(x)),
    Wrapped("step", line_of(step), with_equinox),
    Wrapped("step", line_of(step), with_flax_nnx),
    Wrapped("method", line_of(Layer.method), lambda x: jax.jit(Double().method)(x)),
    Wrapped("Double", line_of(Layer.__call__), lambda x: jax.jit(Double())(x)),
    Wrapped("Model", line_of(step_of_a_model), with_an_equinox_module),
    Wrapped("update", f"{line_of(model)} (model)", with_numpyro_svi),
)


@pytest.mark.parametrize("wrapped", WRAPPED, ids=range(len(WRAPPED)))
def test_a_function_has_the_place_of_its_def_however_it_is_wrapped(wrapped: Wrapped) -> None:
    found = dispatches_of(lambda: wrapped.call(jnp.ones(3)))[-1]

    assert (found.function, found.defined_at) == (wrapped.name, wrapped.line)


LIBRARY = """
import jax
inner = jax.jit(lambda x: x + 1)
def solve(x):
    return inner(x)
def drive(f, x):
    return f(x)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An installed library."""
    folder = tmp_path / "site-packages"
    (folder / "solver").mkdir(parents=True)
    (folder / "solver" / "__init__.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "solver", raising=False)
    return imported("solver")


def called_here(back: int = 1) -> str:
    """The line that calls this."""
    frame = sys._getframe(back)
    return f"{HERE}:{frame.f_lineno} ({frame.f_code.co_name})"


def test_a_librarys_own_jit_is_called_from_the_users_line_through_the_library(
    library: Any,
) -> None:
    with jaxlib.pjit.dispatches() as found:
        library.solve(1.0); here = called_here()  # fmt: skip  # noqa: E702

    (dispatch,) = found
    assert (dispatch.called_from, dispatch.through) == (here, "solver/__init__.py:5 (solve)")
    assert dispatch.defined_at == "solver/__init__.py:3"
    assert f"at {here} through solver/__init__.py:5 (solve) costing" in str(dispatch)


def test_if_a_library_calls_back_the_users_outer_line_is_the_call(library: Any) -> None:
    jitted = make(3.0)
    with jaxlib.pjit.dispatches() as found:
        library.drive(lambda x: jitted(x), 1.0); here = called_here()  # fmt: skip  # noqa: E702

    (dispatch,) = found
    assert (dispatch.called_from, dispatch.through) == (here, "solver/__init__.py:7 (drive)")


def test_of_the_users_own_functions_the_inner_line_is_the_call() -> None:
    jitted, here = make(3.0), ""

    def main() -> None:
        nonlocal here
        jitted(1.0); here = called_here()  # fmt: skip  # noqa: E702

    (dispatch,) = dispatches_of(main)

    assert (dispatch.called_from, dispatch.through) == (here, "")


def test_a_function_that_only_passes_calls_on_is_no_caller() -> None:
    equinox = imported("equinox")

    class Trainer(equinox.Module):
        def fit(self, jitted: Callable) -> str:
            jitted(1.0); return called_here()  # fmt: skip  # noqa: E702

    with jaxlib.pjit.dispatches() as found:
        here = Trainer().fit(make(3.0))

    assert [dispatch.called_from for dispatch in found] == [here]


@pytest.mark.parametrize("runner", ["execnet", "xdist"])
def test_what_runs_tests_in_parallel_is_no_caller(runner: str) -> None:
    names: dict[str, Any] = {}
    text = compile("def run(test): return test()", f"/site-packages/{runner}/remote.py", "exec")
    exec(text, names)
    jitted = make(3.0)

    def test() -> str:
        jitted(1.0); return called_here()  # fmt: skip  # noqa: E702

    with jaxlib.pjit.dispatches() as found:
        here = names["run"](test)

    assert [(dispatch.called_from, dispatch.through) for dispatch in found] == [(here, "")]


def test_if_all_frames_are_a_librarys_its_line_is_the_call(library: Any) -> None:
    with jaxlib.pjit.dispatches() as found:
        thread = threading.Thread(target=library.solve, args=(1.0,))
        thread.start()
        thread.join()

    (dispatch,) = found
    assert (dispatch.called_from, dispatch.through) == ("solver/__init__.py:5 (solve)", "")


def lineages_of(*functions: Any) -> list[int]:
    """The lineages of new jitted functions, numbered in the order of their first calls."""
    with jaxlib.pjit.dispatches() as found:
        for function in functions:
            function(1.0)
    numbers = [dispatch.lineage for dispatch in found]
    return [sorted(set(numbers)).index(number) for number in numbers]


def make(scale: float) -> Callable:
    return jax.jit(lambda x: x * scale)


def test_two_functions_that_a_factory_makes_are_two() -> None:
    assert lineages_of(make(1.0), make(2.0)) == [0, 1]


def test_functions_that_cannot_be_told_apart_are_one_jitted_again() -> None:
    assert lineages_of(make(1.0), make(1.0)) == [0, 0]


def test_a_function_in_the_place_of_a_deleted_one_is_that_one_jitted_again() -> None:
    with jaxlib.pjit.dispatches() as found:
        for scale in (1.0, 2.0, 3.0):
            make(scale)(1.0)

    assert len({dispatch.lineage for dispatch in found}) == 1
    assert len({dispatch.function_number for dispatch in found}) == 3


def test_two_objects_of_one_class_are_two_functions() -> None:
    assert lineages_of(jax.jit(Double()), jax.jit(Double())) == [0, 1]


def test_functions_of_one_name_that_equinox_jits_alike_are_two() -> None:
    equinox = imported("equinox")

    def made(scale: float) -> Callable:
        @equinox.filter_jit
        def step(x: Any) -> Any:
            return x * scale

        return step

    with jaxlib.pjit.dispatches() as found:
        first, second = made(1.0), made(2.0)
        for function in (first, second, first, second):
            function(jnp.ones(3))

    assert [dispatch.is_miss for dispatch in found] == [False, False]
    assert found[0].lineage != found[1].lineage


def test_a_function_that_equinox_jitted_is_a_miss_if_it_was_called_before_the_block() -> None:
    function = imported("equinox").filter_jit(lambda x: x)
    function(jnp.ones(3))

    with jaxlib.pjit.explain() as misses:
        function(jnp.ones(4))

    assert len(misses) == 1
