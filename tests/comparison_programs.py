"""Programs that compare several designs of the fix by their cache entries, on four devices.

`comparison_programs.py DESIGN GROUP...` prints the cache entries after each call by name, and the
right numbers: one entry for each placement of the arguments. It needs no pytest. DESIGN is `as_is`,
or `padded`, a design that was tried: the Python code that makes the physical sharding of a key
spells it at full rank.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import fed_back
import fed_back_programs
import placements
from fed_back import fresh
from reproduction import FIVE_ONES, base_array, mesh_of

IMPL = "threefry2x32"
RANDOM_PROGRAMS = 150
Entries = list[int]

GROUPS = ("routes", "placements", "pairs", "plain", "random")

# The wheel keeps the spelling that the caller asked for, as one more entry.
SAID_ALIKE = {"route: out_shardings, another spelling": FIVE_ONES}
# Two placements to the wheel, one to who compares what specs say: right for one is wrong for the
# other.
LEFT_OUT = "pair: an axis of size 1 or none"


@dataclass(frozen=True)
class Program:
    group: str
    name: str
    run: Callable[[], tuple[Entries, Entries]]  # the entries made, and the right ones


def programs() -> Iterator[Program]:
    for program in fed_back_programs.programs():
        if IMPL in program.impls and not program.lacks() and program.name != LEFT_OUT:
            group = program.name.partition(":")[0] + "s"
            yield Program(group, program.name, lambda program=program: _entries_of(program))
    for spec, asked in PLAIN:
        yield Program("plain", f"{spec} to {asked}", lambda s=spec, a=asked: _plain(s, a))
    yield Program("plain", "axis of size one", _axis_of_size_one)
    for seed in range(RANDOM_PROGRAMS):
        yield Program("random", str(seed), lambda seed=seed: Random(seed).run())


def _entries_of(program: fed_back_programs.Program) -> tuple[Entries, Entries]:
    right = SAID_ALIKE.get(program.name, program.goal)
    return fed_back_programs.outcome_of(program, IMPL).entries, list(right)


PLAIN = (
    (P("a"), P("a", None)),
    (P("a", None), P("a")),
    (P(), P(None, None)),
    (P(None, "b"), P(None, ("b",))),
    (P(("a", "b")), P(("a", "b"), None)),
)


def _plain(spec: P, asked: P) -> tuple[Entries, Entries]:
    """A plain array is fed back, and `out_shardings` spells its placement in another way."""
    f = fresh(lambda x: x + 1, out_shardings=NamedSharding(mesh_of(4), asked))
    x = jax.device_put(np.zeros((4, 4), np.float32), NamedSharding(mesh_of(4), spec))
    entries = []
    for _ in FIVE_ONES:
        x = f(x)
        entries.append(f._cache_size())
    return entries, list(FIVE_ONES)


def _axis_of_size_one() -> tuple[Entries, Entries]:
    """A cache of a decoder: the compiler drops the axis of size one from its sharding."""
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(1, 4), ("data", "tensor"))
    place = [NamedSharding(mesh, P(*names)) for names in ((None, "tensor"), ("data", "tensor"))]
    weights, cache = (jax.device_put(np.ones((8, 8), np.float32), each) for each in place)
    f = fresh(lambda weights, cache: cache + weights.sum())
    entries = []
    for _ in FIVE_ONES:
        cache = f(weights, cache)
        entries.append(f._cache_size())
    return entries, list(FIVE_ONES)


class Random:
    """A program that feeds some keys back, renamed or permuted, and keeps others constant.

    The seed chooses the order, and what is passed positionally, by keyword, in a dict or in a list.
    Some keys are donated.
    """

    PLACES = (
        ((), P()),
        ((4,), P()),
        ((4,), P("a")),
        ((4,), P(None)),
        ((4, 4), P()),
        ((4, 4), P("a")),
        ((4, 4), P("a", None)),
        ((4, 4), P(None, "b")),
        ((4, 4), P("a", "b")),
        ((4, 4), P(("a", "b"))),
    )

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        shape = self.rng.choice([(), (4,), (4, 4)])
        places = [place for place in self.PLACES if place[0] == shape]
        count = self.rng.randint(1, 4)
        self.state = [self._key(self.rng.choice(places)) for _ in range(count)]
        self.constant = [
            self._key(self.rng.choice(self.PLACES)) for _ in range(self.rng.randint(0, 2))
        ]
        self.order = self.rng.sample(range(count), count)  # which output becomes which argument
        self.bumped = [self.rng.random() < 0.5 for _ in range(count)]
        self.form = self.rng.choice([self._positional, self._keywords, self._dict])

    def run(self, calls: int = 6) -> tuple[Entries, Entries]:
        def step(*args: Any, **kwargs: Any) -> list[jax.Array]:
            keys = self._named(args, kwargs)
            bumped = [fed_back.bumped(k) if b else k for k, b in zip(keys, self.bumped)]
            return [bumped[i] for i in self.order]

        f, state = fresh(step), self.state
        met, entries, right = set(), [], []
        for _ in range(calls):
            met.add(tuple(_placement(key) for key in state))
            args, kwargs = self.form(state)
            state = f(*args, **kwargs)
            entries.append(f._cache_size())
            right.append(len(met))
        return entries, right

    def _key(self, place: tuple[tuple[int, ...], P]) -> jax.Array:
        return placements.placed_key(IMPL, place[0], placements.of_mesh(place[1]))

    def _positional(self, state: list[jax.Array]) -> tuple[list[Any], dict[str, Any]]:
        return [*self.constant, *state], {}

    def _keywords(self, state: list[jax.Array]) -> tuple[list[Any], dict[str, Any]]:
        names = [f"k{i}" for i in reversed(range(len(state)))]
        return self.constant, dict(zip(names, state))

    def _dict(self, state: list[jax.Array]) -> tuple[list[Any], dict[str, Any]]:
        return [{"constant": self.constant, "z": list(state)}], {}

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[jax.Array]:
        """The arguments that are fed-back keys."""
        if self.form == self._dict:
            return args[0]["z"]
        if self.form == self._keywords:
            return [kwargs[f"k{i}"] for i in reversed(range(len(kwargs)))]
        return list(args[len(self.constant) :])


def _placement(key: jax.Array) -> tuple[Any, ...]:
    """The placement of a key array, however it is spelled."""
    base = base_array(key)
    spec = base.sharding.spec
    parts = [spec[i] if i < len(spec) else None for i in range(base.ndim)]
    return tuple((part,) if isinstance(part, str) else part or () for part in parts)


def pad() -> None:
    """Makes Python spell the physical sharding of a key at the full rank of its base array."""
    from jax._src import core, sharding_impls

    stock = sharding_impls.make_key_array_phys_sharding

    def padded(aval: Any, sharding: Any) -> Any:
        physical = stock(aval, sharding)
        if physical is sharding or not isinstance(physical, NamedSharding):
            return physical
        rank = aval.ndim + core.physical_element_aval(aval.dtype).ndim
        parts = [*physical.spec.partitions, *[None] * (rank - len(physical.spec))]
        return physical.update(spec=physical.spec.update(partitions=parts))

    sharding_impls.make_key_array_phys_sharding = padded


def results(groups: Sequence[str]) -> dict[str, tuple[Entries, Entries]]:
    return {program.name: program.run() for program in programs() if program.group in groups}


if __name__ == "__main__":
    if sys.argv[1] == "padded":
        pad()
    print(json.dumps(results(sys.argv[2:])))
