"""Whatever is fed back, the cache has one entry for each placement."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import placements
from fed_back import bumped, fresh
from placements import of_mesh
from reproduction import base_array, identity

# The same examples each time, so that the next run shows a failure in CI again.
SAME_EACH_TIME = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
CALLS = 4


@dataclass(frozen=True)
class Start:
    """A key array on a mesh. `axes`, after it is trimmed, spells its placement."""

    mesh: tuple[int, int]
    kind: AxisType
    axes: tuple[Any, ...]  # one for each dimension
    trimmed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return (4,) * len(self.axes)

    def spec(self) -> P:
        axes = list(self.axes)
        while self.trimmed and axes and axes[-1] is None:
            axes.pop()
        return P(*axes)

    def place(self) -> NamedSharding:
        return of_mesh(self.spec(), self.mesh, kind=self.kind)()


def nested(key: jax.Array) -> jax.Array:
    return jax.jit(bumped)(key)


def looped(key: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 2, lambda _, key: bumped(key), key)


def compiled_ahead(first: Any) -> Any:
    """A compiled function with the cache size of a jitted one."""
    compiled = fresh(bumped).lower(first).compile()

    def call(state: Any) -> Any:
        return compiled(state)

    call._cache_size = lambda: compiled._call._cache_size()
    return call


ROUTES: dict[str, Callable[[Any], Any]] = {
    "jit": lambda first: fresh(bumped),
    "passed on": lambda first: fresh(identity),
    "donated": lambda first: fresh(bumped, donate_argnums=0),
    "nested jit": lambda first: fresh(nested),
    "loop": lambda first: fresh(looped),
    "in_shardings": lambda first: fresh(bumped, in_shardings=first.sharding),
    "ahead of time": compiled_ahead,
}


@st.composite
def starts(draw: st.DrawFn, kinds: list[AxisType], min_rank: int = 0, max_rank: int = 3) -> Start:
    rank = draw(st.integers(min_rank, max_rank))
    spelling = st.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a"), "a", "b", None])
    axes: list[Any] = []
    for _ in range(rank):
        taken = {axis for part in axes if part for axis in part}
        part = draw(spelling)
        axes.append(None if part and taken & set(part) else part)
    meshes = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1)]
    kind = draw(st.sampled_from(kinds))
    return Start(draw(st.sampled_from(meshes)), kind, tuple(axes), draw(st.booleans()))


def placement_of(key: Any) -> tuple[Any, ...]:
    """The placement of an array, however it is spelled."""
    base = base_array(key)
    spec = base.sharding.spec
    parts = [spec[i] if i < len(spec) else None for i in range(base.ndim)]
    axes = [(part,) if isinstance(part, str) else tuple(part or ()) for part in parts]
    return base.sharding.mesh, tuple(axes), base.sharding.memory_kind


def fed_back(f: Any, state: Any) -> list[Any]:
    """The argument of each call."""
    arguments = []
    for _ in range(CALLS):
        arguments.append(placement_of(state))
        state = f(state)
    return arguments


@SAME_EACH_TIME
@given(
    start=starts(kinds=[AxisType.Auto, AxisType.Explicit]),
    route=st.sampled_from(sorted(ROUTES)),
    impl=st.sampled_from(placements.IMPLS),
)
def test_a_key_that_keeps_its_placement_makes_one_entry(
    start: Start, route: str, impl: str
) -> None:
    first = placements.placed_key(impl, start.shape, start.place)
    f = ROUTES[route](first)

    met = fed_back(f, first)

    assert (len(set(met)), f._cache_size()) == (1, 1)


def turned(x: jax.Array) -> jax.Array:
    """Moves each dimension, with its mesh axes, one position to the front."""
    return jax.numpy.moveaxis(x, 0, -1)


@SAME_EACH_TIME
@given(start=starts(kinds=[AxisType.Auto], min_rank=1), impl=st.sampled_from(placements.IMPLS))
def test_a_key_that_is_moved_makes_as_many_entries_as_a_plain_array(
    start: Start, impl: str
) -> None:
    plain, keyed = fresh(turned), fresh(turned)

    fed_back(plain, jax.device_put(np.zeros(start.shape, np.float32), start.place()))
    fed_back(keyed, placements.placed_key(impl, start.shape, start.place))

    assert keyed._cache_size() == plain._cache_size()


@SAME_EACH_TIME
@given(
    several=st.lists(starts(max_rank=1, kinds=[AxisType.Auto]), min_size=2, max_size=4),
    impl=st.sampled_from(placements.IMPLS),
)
def test_keys_of_several_placements_make_one_entry_for_each(
    several: list[Start], impl: str
) -> None:
    f = fresh(bumped)
    # One spelling of each. Another one from outside is another signature, as with plain arrays.
    firsts = {
        (start.shape, placement_of(key)): key
        for start in several
        for key in [placements.placed_key(impl, start.shape, start.place)]
    }

    met = [
        (shape, placement) for (shape, _), key in firsts.items() for placement in fed_back(f, key)
    ]

    assert f._cache_size() == len(set(met))
