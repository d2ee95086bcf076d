"""Key arrays by their placement and its spelling, on four CPU devices.

The tests run them here, and on stock jaxlib for the values. So this module needs no pytest. As a
program, it prints what each case computes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import fed_back
import own_dtypes
import reproduction
from fed_back import bumped
from reproduction import FIVE_ONES, base_array, keys, mesh_of

IMPLS = (*fed_back.IMPLS, "three_words")
Shape = tuple[int, ...]
Place = Callable[[], Any]  # makes a sharding, of devices that exist only then


def present() -> str:
    """What a release lacks for a case: nothing."""
    return ""


@dataclass(frozen=True)
class Placement:
    """A key array that is fed back through a function that leaves it where it is."""

    name: str
    shape: Shape
    place: Place
    asks: bool = False  # whether the function has `out_shardings`, of the same placement
    goal: tuple[int, ...] = FIVE_ONES
    lacks: Callable[[], str] = present  # what the release lacks, if anything
    impls: tuple[str, ...] = IMPLS[:1]


@dataclass(frozen=True)
class Pair:
    """Two placements that must stay two entries. Each is fed back by itself."""

    name: str
    shape: Shape
    first: Place
    second: Place
    lacks: Callable[[], str] = present
    impls: tuple[str, ...] = IMPLS[:1]


def fitting(shape: Shape) -> Shape:
    """The shape of a mesh, with its longest axes cut until there are enough devices."""
    sizes = list(shape)
    while prod(sizes) > len(jax.devices()):
        longest = len(sizes) - 1 - sizes[::-1].index(max(sizes))
        sizes[longest] //= 2
    return tuple(sizes)


def of_mesh(
    spec: P,
    shape: Shape = (2, 2),
    names: tuple[str, ...] = ("a", "b"),
    *,
    order: tuple[int, ...] = (0, 1, 2, 3),
    kind: AxisType = AxisType.Auto,
    memory: str | None = None,
) -> Place:
    """A NamedSharding on the devices in some order. Equal meshes are one object.

    Where there are fewer than four devices, the mesh is as large as it can be.
    """

    def place() -> NamedSharding:
        sizes = fitting(shape)
        there = [place for place in order[: prod(shape)] if place < prod(sizes)]
        devices = np.array(jax.devices())[there].reshape(sizes)
        mesh = Mesh(devices, names, axis_types=(kind,) * len(sizes))
        return NamedSharding(mesh, spec, memory_kind=memory)

    return place


def of_gspmd(spec: P, rank: int) -> Place:
    """The GSPMDSharding that places an array of that rank as `spec` does."""

    def place() -> Sharding:
        from jax._src.sharding_impls import GSPMDSharding

        named = NamedSharding(mesh_of(4), spec)
        return GSPMDSharding(tuple(named.mesh.devices.flat), named._to_xla_hlo_sharding(rank))

    return place


def of_one_device() -> Sharding:
    return SingleDeviceSharding(jax.devices()[0])


def nowhere() -> None:
    """The sharding of an uncommitted array."""


def without_host_memory() -> str:
    kinds = {memory.kind for memory in jax.devices()[0].addressable_memories()}
    return "" if "pinned_host" in kinds else "the release's CPU devices have no such memory"


@functools.cache
def without_host_outputs() -> str:
    if reason := without_host_memory():
        return reason
    place = of_mesh(P("a"), memory="pinned_host")()
    moved = jax.jit(reproduction.increment, out_shardings=place).lower(np.ones(4, np.float32))
    try:
        moved.compile()
    except jax.errors.JaxRuntimeError:
        return "the release cannot compile an output in that memory, not even a plain array"
    return ""


def with_other_gspmd() -> str:
    old = jax.__version_info__ < (0, 7)
    return "feeding a plain array back makes a second entry too" if old else ""


def without_reduced_keys() -> str:
    """The axes of a pending sum, or of a finished one. Old releases put keys on them."""
    old = jax.__version_info__ < (0, 9)
    # 0.10 refuses that; 0.12 refuses `reduced`, and `unreduced` ends the process.
    return "" if old else "jax puts no key on such axes"


def reduced_over(axis: str, spec: P, field: str = "reduced") -> Place:
    with_axes = P(*spec, **{field: {axis}})
    return of_mesh(with_axes, kind=AxisType.Explicit)


SPELLINGS: dict[str, tuple[P, tuple[Shape, ...]]] = {
    "P()": (P(), ((), (4,), (4, 4), (4, 4, 4), (0,), (0, 4), (4, 0), (1,), (1, 4), (4, 1))),
    "P(None)": (P(None), ((4,), (4, 4), (4, 4, 4), (0, 4), (1, 4))),
    "P('a')": (P("a"), ((4,), (4, 4), (4, 4, 4), (4, 1))),
    "P(('a',))": (P(("a",)), ((4,), (4, 4))),
    "P('a', None)": (P("a", None), ((4, 4), (4, 4, 4), (4, 1))),
    "P(None, 'b')": (P(None, "b"), ((4, 4), (4, 4, 4), (1, 4))),
    "P('a', 'b')": (P("a", "b"), ((4, 4), (4, 4, 4))),
    "P(('a', 'b'))": (P(("a", "b")), ((4,), (4, 4), (4, 4, 4), (4, 1))),
    "P('a', None, 'b')": (P("a", None, "b"), ((4, 4, 4),)),
}
# One case of each kind: replicated, spelled short and spelled in full.
FEW: tuple[tuple[P, Shape], ...] = (
    (P(), ()), (P(), (4,)), (P("a"), (4,)), (P("a"), (4, 4)), (P("a", "b"), (4, 4)),
)  # fmt: skip
MESHES: dict[str, dict[str, Any]] = {
    "explicit mesh": {"kind": AxisType.Explicit},
    "mesh of one device": {"shape": (1, 1)},
    "second axis of size 1": {"shape": (4, 1)},
    "first axis of size 1": {"shape": (1, 4)},
    "mesh in another order": {"order": (1, 3, 0, 2)},
}


def spelled() -> Iterator[Placement]:
    for name, (spec, shapes) in SPELLINGS.items():
        for shape in shapes:
            yield Placement(f"{shape}, {name}", shape, of_mesh(spec), impls=IMPLS)


def on_other_meshes() -> Iterator[Placement]:
    for name, options in MESHES.items():
        for spec, shape in FEW:
            yield Placement(f"{shape}, {spec}, {name}", shape, of_mesh(spec, **options))


def in_memory(kind: str) -> Iterator[Placement]:
    """Outputs go to the device's memory unless the caller asks for another."""
    for spec, shape in FEW:
        place = of_mesh(spec, memory=kind)
        name = f"{shape}, {spec}, {kind}"
        yield Placement(name, shape, place, asks=True, lacks=without_host_outputs)


def of_other_types() -> Iterator[Placement]:
    for spec, shape in FEW:
        name, place = f"{shape}, {spec}, GSPMDSharding", of_gspmd(spec, len(shape))
        yield Placement(name, shape, place, lacks=with_other_gspmd)
        yield Placement(f"{name} asked for", shape, place, asks=True, lacks=with_other_gspmd)


def with_axes_of_a_sum() -> Iterator[Placement]:
    for field in ("reduced", "unreduced"):
        for spec, shape in ((P(), ()), (P("b"), (4,))):
            place = reduced_over("a", spec, field)
            name = f"{shape}, {spec}, {field}"
            yield Placement(name, shape, place, lacks=without_reduced_keys)


PLACEMENTS = (
    *spelled(),
    *on_other_meshes(),
    *in_memory("device"),
    *in_memory("pinned_host"),
    *of_other_types(),
    *with_axes_of_a_sum(),
    Placement("uncommitted", (4, 4), nowhere),
    Placement("one device, no mesh", (4, 4), of_one_device),
)
# The function moves the data: its old placement is one entry, its new one another.
MOVED = (
    Placement("zero-size (0,), P('a')", (0,), of_mesh(P("a")), goal=(1, 2, 2, 2, 2)),
    Placement("zero-size (0, 4), P('a')", (0, 4), of_mesh(P("a")), goal=(1, 2, 2, 2, 2)),
    Placement("zero-size (4, 0), P('a', None)", (4, 0), of_mesh(P("a", None)),
              goal=(1, 2, 2, 2, 2)),
    Placement("zero-size (0, 4), P(None, ('a', 'b'))", (0, 4), of_mesh(P(None, ("a", "b"))),
              goal=(1, 2, 2, 2, 2)),
    Placement("host memory, scalar", (), of_mesh(P(), memory="pinned_host"), goal=(1, 2, 2, 2, 2),
              lacks=without_host_memory),
    Placement("host memory, matrix", (4, 4), of_mesh(P("a"), memory="pinned_host"),
              goal=(1, 2, 2, 2, 2), lacks=without_host_memory),
)  # fmt: skip
PAIRS = (
    Pair("replicated or split", (4,), of_mesh(P()), of_mesh(P("a"))),
    Pair("another axis", (4,), of_mesh(P("a")), of_mesh(P("b"))),
    Pair("another dimension", (4, 4), of_mesh(P("a")), of_mesh(P(None, "a"))),
    Pair("one axis or two", (4,), of_mesh(P("a")), of_mesh(P(("a", "b")))),
    Pair("axes in another order", (4,), of_mesh(P(("a", "b"))), of_mesh(P(("b", "a")))),
    Pair("devices in another order, replicated", (), of_mesh(P()),
         of_mesh(P(), order=(3, 2, 1, 0))),
    Pair("devices in another order, split", (4, 4), of_mesh(P("a")),
         of_mesh(P("a"), order=(3, 2, 1, 0))),
    Pair("axes of other names", (), of_mesh(P()), of_mesh(P(), names=("x", "y"))),
    Pair("axes of other sizes", (), of_mesh(P()), of_mesh(P(), (4, 1))),
    Pair("axes of another type", (), of_mesh(P()), of_mesh(P(), kind=AxisType.Explicit)),
    Pair("an axis of size 1 or none", (4,), of_mesh(P(), (4, 1)), of_mesh(P("b"), (4, 1))),
    Pair("fewer devices", (4,), of_mesh(P()), of_mesh(P(), (2, 1))),
    Pair("mesh of one device or that device", (), of_mesh(P(), (1, 1)), of_one_device),
    Pair("committed or not", (), nowhere, of_one_device),
    Pair("another type of sharding", (), of_mesh(P()), of_gspmd(P(), 0), lacks=with_other_gspmd),
    Pair("device memory or the host's", (4, 4), of_mesh(P("a")),
         of_mesh(P("a"), memory="pinned_host"), lacks=without_host_memory),
)  # fmt: skip

ON_ONE_DEVICE = {
    *(f"{shape}, {spec}, mesh of one device" for spec, shape in FEW),
    *("uncommitted", "one device, no mesh"),
    *("mesh of one device or that device", "committed or not"),
}


def placed_key(impl: str, shape: Shape, place: Place) -> jax.Array:
    key = keys(own_dtypes.impl_of(impl), shape)
    sharding = place()
    return key if sharding is None else jax.device_put(key, sharding)


def run(case: Placement, impl: str) -> reproduction.Run:
    """Feeds the key array of the case back, once for each number of its goal."""
    traces: list[None] = []

    def step(key: jax.Array) -> jax.Array:
        traces.append(None)
        return bumped(key)

    f = jax.jit(step, out_shardings=case.place()) if case.asks else jax.jit(step)
    first = placed_key(impl, case.shape, case.place)
    return reproduction.call_back(f, traces, first, len(case.goal))


def run_in_turn(pair: Pair, impl: str, rounds: int = 3) -> tuple[list[int], list[list[Any]]]:
    """Feeds both key arrays of a pair back through one function.

    Returns:
      The cache entries after each call, and all states of each of the two.
    """
    f, _ = reproduction.counted(bumped)
    chains = [[placed_key(impl, pair.shape, place)] for place in (pair.first, pair.second)]
    entries = []
    for _ in range(rounds):
        for chain in chains:
            chain.append(f(chain[-1]))
            entries.append(f._cache_size())
    return entries, chains


def bits(key: jax.Array) -> str:
    return np.asarray(base_array(key)).tobytes().hex()


def title(case: Placement | Pair, impl: str) -> str:
    return f"{case.name}, {impl}"


def values() -> dict[str, list[str]]:
    """The values that each case computes, by its name and the PRNG's. Some compute none.

    With stock 0.10.2, feeding a key array on a GSPMDSharding back twice is an error: its logical
    sharding does not fit the base array.
    """
    placed = {
        title(case, impl): run(case, impl)
        for case in (*PLACEMENTS, *MOVED)
        if not case.lacks()
        for impl in case.impls
    }
    in_turn = {
        title(pair, impl): [bits(chain[-1]) for chain in run_in_turn(pair, impl)[1]]
        for pair in PAIRS
        if not pair.lacks()
        for impl in pair.impls
    }
    done = {name: [bits(ran.last)] for name, ran in placed.items() if ran.outcome == "ok"}
    return done | in_turn


if __name__ == "__main__":
    print(json.dumps(values()))
