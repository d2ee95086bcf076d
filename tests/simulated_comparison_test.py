"""Upstream's comparison, simulated on stock jaxlib: no program makes an extra entry.

`simulated_comparison.py` names the limits. `build.py conformance --simulate-comparison` runs JAX's
own tests in the same way, and `port_test.py` runs upstream's new ones.
"""

from __future__ import annotations

import functools
from importlib.metadata import version

import pytest

import comparison_programs
import interpreters
from comparison_programs import Entries

RELEASE = tuple(int(number) for number in version("jax").split(".")[:2])
pytestmark = pytest.mark.skipif(RELEASE < (0, 10), reason="jaxlib compares specs in C++ there")

SIMULATION = str(interpreters.TESTS / "simulated_comparison.py")
PROGRAMS = str(interpreters.TESTS / "comparison_programs.py")
HOW_MANY = {"routes": 52, "placements": 87, "pairs": 15, "plain": 6, "random": 150}

ON_ONE_MESH = """
import json
import simulated_comparison, placements
pair, = (pair for pair in placements.PAIRS if pair.name == "an axis of size 1 or none")
print(json.dumps(placements.run_in_turn(pair, "threefry2x32")[0]))
"""
IN_PYTHON = """
import json, operator
import simulated_comparison, jax
from jax.sharding import NamedSharding, PartitionSpec as P
from reproduction import mesh_of
a, b = (NamedSharding(mesh_of(4), spec) for spec in (P("a"), P("a", None)))
print(json.dumps([a.spec == b.spec, a.spec != b.spec, a.spec in [b.spec], a.spec == a.spec,
                  len({a.spec, b.spec}), operator.eq(a.spec, b.spec)]))
"""


@functools.cache
def results(group: str, *, simulated: bool) -> dict[str, tuple[Entries, Entries]]:
    """The entries that each program made on stock jaxlib, and the right ones."""
    command = [*([SIMULATION] if simulated else []), PROGRAMS, "as_is", group]
    return interpreters.answer(command, python=interpreters.stock_python(), devices=4)


def wrong(group: str, *, simulated: bool) -> set[str]:
    found = results(group, simulated=simulated)
    assert len(found) == HOW_MANY[group]
    return {name for name, (entries, right) in found.items() if entries != right}


@pytest.mark.parametrize("group", comparison_programs.GROUPS)
def test_no_program_makes_an_extra_entry(group: str) -> None:
    left = wrong(group, simulated=True)

    # Until 0.10, feeding such a key back twice is an error, which only the table fixes.
    needs_table = {name for name in left if "GSPMDSharding" in name and RELEASE < (0, 11)}
    assert left - needs_table == set()
    assert len(needs_table) == (6 if group == "placements" and RELEASE < (0, 11) else 0)


def test_without_it_every_plain_array_in_another_spelling_makes_one() -> None:
    # P(None, ('b',)) equals P(None, 'b'), so it is no other spelling.
    assert len(wrong("plain", simulated=False)) == 5


def test_an_axis_of_size_one_is_the_same_placement() -> None:
    entries = interpreters.answer(ON_ONE_MESH, python=interpreters.stock_python(), devices=4)

    assert entries == [1, 1, 1, 1, 1, 1]


def test_a_comparison_in_python_gets_the_usual_answer() -> None:
    answers = interpreters.answer(IN_PYTHON, python=interpreters.stock_python(), devices=4)

    # The simulation cannot tell the last one from jaxlib's own comparison.
    assert answers == [False, True, False, True, 2, True]
