"""Random programs that feed key arrays back, with the rule off and on in one process.

The seed determines all of a program: the keys that it starts with, how they are made and spelled,
how the jitted function takes and returns them, and which output becomes which argument. Run as a
program, this module runs many of them and prints the results as JSON. `build.py promise` does so
for several releases.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

os.environ["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = " ".join(
    ["--xla_force_host_platform_device_count=4", os.environ.get("XLA_FLAGS", "")]
).strip()

import jax
import jaxlib.version
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib import _pjit

from fed_back import bumped, fresh
from reproduction import base_array

CALLS = 6
WORDS = {"threefry2x32": 2, "rbg": 4}  # of a key
IMPLS = ("threefry2x32", "threefry2x32", "rbg")
# The mesh axes of each dimension of a key array. Few, so that several keys have one placement.
PLACEMENTS: tuple[tuple[Any, ...], ...] = (
    (), (None,), ("a",), (None, None), ("a", None), (None, "b"), ("a", "b"), (("a", "b"), None),
)  # fmt: skip
MESHES = ((2, 2), (2, 2), (2, 2), (1, 4))  # the last one has an axis that splits nothing
ROUTES = ("device_put", "device_put", "wrap_key_data", "make_array_from_callback", "out_shardings")
PASSING = ("positional", "keyword", "dict", "list")
RETURNING = ("dict", "list", "tuple", "alone")
# Which output becomes which argument: the same in each call, or sometimes another.
STEADY = ("as named", "as named", "permuted", "renamed", "constant")
CHANGING = ("rewired", "restarted")
KINDS = {"steady": STEADY, "changing": CHANGING}


@dataclass(frozen=True)
class Key:
    """A key array from outside: its placement, and the spelling of it."""

    mesh: tuple[int, int]
    kind: AxisType
    axes: tuple[Any, ...]  # one for each dimension
    trimmed: bool  # trailing `None`s, which say nothing
    route: str
    impl: str
    data_seed: int  # the seed of its data

    @property
    def shape(self) -> tuple[int, ...]:
        return (4,) * len(self.axes)

    def make(self) -> jax.Array:
        return MAKERS[self.route](self)

    def sharding(self, *more: None) -> NamedSharding:
        """The sharding in this spelling, for `more` further dimensions."""
        axes = [*self.axes, *more]
        while self.trimmed and axes and axes[-1] is None:
            axes.pop()
        return NamedSharding(mesh_of(self.mesh, self.kind), P(*axes))

    def data(self) -> np.ndarray:
        shape = (*self.shape, WORDS[self.impl])
        return np.random.default_rng(self.data_seed).integers(1 << 32, size=shape, dtype=np.uint32)


def mesh_of(shape: tuple[int, int], kind: AxisType) -> Mesh:
    devices = np.array(jax.devices()[:4]).reshape(shape)
    return Mesh(devices, ("a", "b"), axis_types=(kind, kind))


def by_device_put(key: Key) -> jax.Array:
    unplaced = jax.random.wrap_key_data(key.data(), impl=key.impl)
    return jax.device_put(unplaced, key.sharding())


def by_wrap_key_data(key: Key) -> jax.Array:
    return jax.random.wrap_key_data(jax.device_put(key.data(), key.sharding(None)), impl=key.impl)


def by_callback(key: Key) -> jax.Array:
    data = key.data()
    placed = jax.make_array_from_callback(data.shape, key.sharding(None), lambda at: data[at])
    return jax.random.wrap_key_data(placed, impl=key.impl)


def by_out_shardings(key: Key) -> jax.Array:
    """By a function of its own, since the result of a shared one depends on earlier programs."""
    data = key.data()
    wrapping = jax.jit(
        lambda: jax.random.wrap_key_data(data, impl=key.impl), out_shardings=key.sharding()
    )
    return wrapping()


MAKERS: dict[str, Callable[[Key], jax.Array]] = {
    "device_put": by_device_put,
    "wrap_key_data": by_wrap_key_data,
    "make_array_from_callback": by_callback,
    "out_shardings": by_out_shardings,
}


@dataclass(frozen=True)
class Output:
    """A key that the function returns: the argument that it is made from, and its name."""

    source: int
    name: str
    changed: bool


@dataclass(frozen=True)
class Program:
    """The program of a seed."""

    seed: int
    keys: tuple[Key, ...]
    plain: int  # plain arrays beside the keys
    passing: str
    order: tuple[int, ...]  # of keyword arguments and of items of a dict
    outputs: tuple[Output, ...]
    returning: str
    wiring: str
    fed: tuple[int | None, ...]  # the output that each key argument becomes, None for a constant
    donated: bool


def program_of(seed: int, wirings: tuple[str, ...] = STEADY) -> Program:
    rng = random.Random(seed)
    mesh, kind = rng.choice(MESHES), rng.choice([AxisType.Auto] * 4 + [AxisType.Explicit])
    impl = rng.choice(IMPLS)
    placements = rng.sample(PLACEMENTS, rng.choice((1, 1, 1, 2)))
    made = tuple(
        Key(mesh, kind, rng.choice(placements), rng.random() < 0.6, rng.choice(ROUTES), impl, i)
        for i in range(rng.randint(1, 4))
    )
    wiring = rng.choice(wirings)
    outputs = outputs_of(rng, made, wiring)
    fed = tuple(feed(rng, i, made, outputs, wiring) for i in range(len(made)))
    passing = rng.choice(PASSING)
    order = rng.sample(range(len(made)), len(made))
    returning = rng.choice(RETURNING if len(outputs) == 1 else RETURNING[:-1])
    # A donated key is deleted, so each key has to come back, once.
    can_donate = None not in fed and len(set(fed)) == len(fed) and wiring in STEADY
    donated = can_donate and passing != "keyword" and rng.random() < 0.5
    return Program(
        seed=seed, keys=made, plain=rng.choice((0, 0, 1, 2)), passing=passing, order=tuple(order),
        outputs=outputs, returning=returning, wiring=wiring, fed=fed, donated=donated,
    )  # fmt: skip


def name_of(index: int) -> str:
    return "hgfedcba"[index]  # so that sorting by name gives another order


def outputs_of(rng: random.Random, made: tuple[Key, ...], wiring: str) -> tuple[Output, ...]:
    count = len(made)
    sources = [i for i in range(count) if rng.random() < 0.8] or [rng.randrange(count)]
    if wiring == "permuted":
        rng.shuffle(sources)
    return tuple(
        Output(source, f"new{i}" if wiring == "renamed" else name_of(source), rng.random() < 0.9)
        for i, source in enumerate(sources)
    )


def feed(
    rng: random.Random, index: int, made: tuple[Key, ...], outputs: tuple[Output, ...], wiring: str
) -> int | None:
    """The output that key argument `index` becomes."""
    fitting = [i for i, each in enumerate(outputs) if made[each.source].shape == made[index].shape]
    same = [i for i in fitting if outputs[i].source == index]
    if wiring in ("as named", "rewired", "restarted"):
        return same[0] if same else None
    if wiring == "constant":
        return same[0] if same and rng.random() < 0.5 else None
    return rng.choice([*fitting, None]) if fitting else None


def rewired(rng: random.Random, program: Program) -> tuple[int | None, ...]:
    """The same program with another wiring, for one call."""
    return tuple(
        fed if fed is None else feed(rng, i, program.keys, program.outputs, "permuted")
        for i, fed in enumerate(program.fed)
    )


def step_of(program: Program) -> Callable[[list[Any], list[Any]], tuple[Any, list[Any]]]:
    """The work of the program's function on its keys and its plain arrays."""

    def step(taken: list[jax.Array], plain: list[jax.Array]) -> tuple[Any, list[jax.Array]]:
        made = [
            bumped(taken[each.source]) if each.changed else taken[each.source]
            for each in program.outputs
        ]
        named = {each.name: key for each, key in zip(program.outputs, made)}
        returned = {"dict": named, "list": made, "tuple": tuple(made), "alone": made[0]}
        return returned[program.returning], [x + 1 for x in plain]

    return step


def function_of(program: Program) -> tuple[Any, Callable[[list[Any], list[Any]], Any]]:
    """The program's jitted function, and how to call it with its keys and its plain arrays."""
    step, count = step_of(program), len(program.keys)
    names = [name_of(i) for i in range(count)]
    ordered = [(names[i], i) for i in program.order]
    donate = tuple(range(count)) if program.passing == "positional" else (0,)
    options = {"donate_argnums": donate} if program.donated else {}
    if program.passing == "positional":
        f = fresh(lambda *args: step(list(args[:count]), list(args[count:])), **options)
        return f, lambda taken, plain: f(*taken, *plain)
    if program.passing == "list":
        f = fresh(step, **options)
        return f, f
    if program.passing == "dict":
        f = fresh(lambda keys, plain: step([keys[name] for name in names], plain), **options)
        return f, lambda taken, plain: f({name: taken[i] for name, i in ordered}, plain)
    f = fresh(lambda plain, **keys: step([keys[name] for name in names], plain))
    return f, lambda taken, plain: f(plain=plain, **{name: taken[i] for name, i in ordered})


def leaves_of(returned: Any, program: Program) -> list[jax.Array]:
    if program.returning == "alone":
        return [returned]
    if program.returning == "dict":
        return [returned[each.name] for each in program.outputs]
    return list(returned)


def placement_of(key: jax.Array) -> tuple[Any, ...]:
    """The placement of an array, however it is spelled."""
    base = base_array(key)
    sharding = base.sharding
    sizes = sharding.mesh.shape
    said = [part or () for part in sharding.spec] + [()] * (base.ndim - len(sharding.spec))
    axes = [(part,) if isinstance(part, str) else tuple(part) for part in said]
    keeps = AxisType.Explicit in sharding.mesh.axis_types
    return (
        base.shape, sharding.mesh, sharding.memory_kind,
        tuple(tuple(axis for axis in part if keeps or sizes[axis] > 1) for part in axes),
    )  # fmt: skip


@dataclass(frozen=True)
class Run:
    """The result of a program."""

    entries: tuple[int, ...]  # after each call
    placements: int  # the entries if only placements counted
    bits: tuple[bytes, ...]  # of all returned keys


@contextmanager
def rule(on: bool) -> Iterator[None]:
    before = _pjit.set_physical_out_shardings(on)
    try:
        yield
    finally:
        _pjit.set_physical_out_shardings(before)


def run(program: Program, on: bool) -> Run:
    """Makes the keys, and calls the function as often as `CALLS` says."""
    rng = random.Random(program.seed)
    with rule(on):
        first = [key.make() for key in program.keys]
        place = NamedSharding(first[0].sharding.mesh, P())
        plain = [jax.device_put(np.full(4, i, np.uint32), place) for i in range(program.plain)]
        f, call = function_of(program)
        taken, entries, met, bits = first, [], set(), []
        for _ in range(CALLS):
            met.add(tuple(placement_of(key) for key in taken))
            returned, plain = call(taken, plain)
            made = leaves_of(returned, program)
            entries.append(f._cache_size())
            bits += [np.asarray(base_array(key)).tobytes() for key in made]
            fed = rewired(rng, program) if program.wiring == "rewired" else program.fed
            taken = [key if i is None else made[i] for key, i in zip(taken, fed)]
            if program.wiring == "restarted" and rng.random() < 0.3:
                taken = first
    return Run(tuple(entries), len(met), tuple(bits))


def is_worse(ours: Run, stock: Run) -> bool:
    """Whether there were more entries than with stock after any call."""
    return any(mine > theirs for mine, theirs in zip(ours.entries, stock.entries))


def is_left(run: Run) -> bool:
    """Whether the end has an entry that a comparison of placements would not make."""
    return run.entries[-1] > run.placements


@dataclass
class Tally:
    """The results of many programs. The lists contain seeds."""

    jaxlib: str
    kind: str  # of wiring
    programs: int = 0
    worse: list[int] = field(default_factory=list)
    other_values: list[int] = field(default_factory=list)
    left_by_stock: int = 0
    left: int = 0

    def add(self, seed: int) -> None:
        program = program_of(seed, KINDS[self.kind])
        stock, ours = run(program, on=False), run(program, on=True)
        self.programs += 1
        self.worse += [seed] * is_worse(ours, stock)
        self.other_values += [seed] * (ours.bits != stock.bits)
        self.left_by_stock += is_left(stock)
        self.left += is_left(ours)


def tally_of(seeds: Iterable[int], kind: str) -> Tally:
    tally = Tally(jaxlib.version.__version__, kind)
    for seed in seeds:
        tally.add(seed)
        if tally.programs % 100 == 0:
            jax.clear_caches()  # of deleted functions
            found = f"{len(tally.worse)} worse than stock, {tally.left} left"
            print(f"{tally.programs} programs, {found}", file=sys.stderr, flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--changing", action="store_true", help="another wiring now and then")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.programs)
    tally = tally_of(seeds, "changing" if options.changing else "steady")
    print(json.dumps(asdict(tally)))
    return 1 if tally.worse or tally.other_values else 0


if __name__ == "__main__":
    sys.exit(main())
