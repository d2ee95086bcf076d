"""Every route, placement and pair of placements by name, for any devices.

`fed_back_programs.py IMPL NAME...` prints what these programs do with that PRNG. The tests on GPUs
run it on CPUs and on stock jaxlib too, so it needs no pytest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax

import fed_back
import placements
from fed_back import Route
from placements import Pair, Placement
from reproduction import base_array

# These need four devices: on two devices, two of their placements are one.
_ON_FOUR = {"axes of other sizes", "fewer devices"}


class Outcome(NamedTuple):
    """The cache entries after each call of a program, and the bits of the last output."""

    entries: list[int]
    bits: list[str]
    keys: list[str]  # of the keys in it only
    outcome: str = "ok"


@dataclass(frozen=True)
class Program:
    """A program, with the entries that it makes on two devices or more."""

    name: str
    goal: tuple[int, ...]
    impls: tuple[str, ...]
    lacks: Callable[[], str]  # what the release lacks, if anything
    run: Callable[[str], Outcome]  # with the PRNG of that name
    least: int = 2  # the devices that the goal needs
    most: int = 4


def programs() -> Iterator[Program]:
    """All programs."""
    for route in fed_back.ROUTES:
        yield _of_route(route)
    for case in (*placements.PLACEMENTS, *placements.MOVED):
        yield _of_placement(case)
    for pair in placements.PAIRS:
        yield _of_pair(pair)


def _of_route(route: Route) -> Program:
    def run(impl: str) -> Outcome:
        done = fed_back.fed_back(route, impl)
        keys = [leaf for leaf in jax.tree.leaves(done.state) if base_array(leaf) is not leaf]
        return Outcome(done.entries, fed_back.bits(done.state), fed_back.bits(keys))

    return Program(f"route: {route.name}", route.goal, fed_back.IMPLS, lambda: route.lacks, run)


def _of_placement(case: Placement) -> Program:
    def run(impl: str) -> Outcome:
        done = placements.run(case, impl)
        bits = [placements.bits(done.last)] if done.outcome == "ok" else []
        return Outcome(done.entries, bits, bits, done.outcome)

    devices = _devices(case)
    return Program(f"placement: {case.name}", case.goal, case.impls, case.lacks, run, *devices)


def _of_pair(pair: Pair) -> Program:
    def run(impl: str) -> Outcome:
        entries, chains = placements.run_in_turn(pair, impl)
        bits = [placements.bits(chain[-1]) for chain in chains]
        return Outcome(entries, bits, bits)

    goal = (1, 2, 2, 2, 2, 2)
    return Program(f"pair: {pair.name}", goal, pair.impls, pair.lacks, run, *_devices(pair))


def _devices(case: Placement | Pair) -> tuple[int, int]:
    if case.name in placements.ON_ONE_DEVICE:
        return 1, 1
    return (4, 4) if case.name in _ON_FOUR else (2, 4)


def outcome_of(program: Program, impl: str) -> Outcome:
    """The outcome of a program, which may be an error."""
    try:
        return program.run(impl)
    except Exception as error:  # a release may not support it
        return Outcome([], [], [], f"raises {type(error).__name__}: {error}".splitlines()[0])


def main(impl: str, *names: str) -> None:
    outcomes = {
        program.name: outcome_of(program, impl)
        for program in programs()
        if program.name in names and impl in program.impls and not program.lacks()
    }
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
