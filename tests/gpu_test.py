"""Both tables, and all programs that feed keys back, on one, two, four or eight GPUs.

The cache entries must reach the goals, and equal those of as many CPU devices. The values must
equal those of stock jaxlib on the same GPUs. Keys are integers, so they must equal those on CPUs.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

os.environ.setdefault("JAX_PLATFORMS", "")

from typing import Any

import jax
import pytest

import fed_back
import fed_back_programs
import gpus
import interpreters
import placements
import reproduction
from fed_back_programs import Outcome, Program
from reproduction import Case, base_array

gpus.or_skip()

KEYS_ALIKE = "threefry2x32"  # the only PRNG that JAX promises to be the same on all platforms
TIMEOUT_S = 1800  # to compile a hundred programs for GPUs
TABLES = (*reproduction.SECTION_1, *reproduction.SECTION_2)


@pytest.fixture(autouse=True)
def on_gpus(request: pytest.FixtureRequest, record_property: Any) -> None:
    gpus.or_fail()
    gpus.record(record_property, request.node.get_closest_marker("gpus").args[0])


@pytest.mark.gpus(gpus.HAS)
def test_jax_finds_all_gpus_that_were_asked_for() -> None:
    found = gpus.HAS

    assert found == (gpus.ASKED_FOR or found)


@pytest.mark.parametrize("impl", fed_back.IMPLS)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=gpus.row(case.least, case.devices)) for case in TABLES],
)
def test_one_placement_makes_one_cache_entry(case: Case, impl: str) -> None:
    f, traces = reproduction.counted(case.step)

    run = reproduction.call_back(f, traces, case.make(impl), len(case.goal), case.feeds_back)

    assert (run.entries, run.outcome) == (list(case.goal), "ok")


@pytest.mark.parametrize("impl", fed_back.IMPLS)
@pytest.mark.parametrize("case", [pytest.param(reproduction.NO_TRACING, marks=gpus.row(2, 2))])
def test_a_fed_back_key_is_not_traced_again(case: Case, impl: str) -> None:
    run = reproduction.without_tracing(case, impl)

    assert (run.entries, run.outcome) == (list(case.goal), "ok")


def each(least: int | None = None, impls: tuple[str, ...] = placements.IMPLS) -> Any:
    """Each program with each of its PRNGs, on up to four GPUs.

    On one GPU all meshes have one device. Most goals need more, and are left out then.
    """
    return pytest.mark.parametrize(
        ("program", "impl"),
        [
            pytest.param(program, impl, id=f"{program.name}, {impl}", marks=marks(program, least))
            for program in fed_back_programs.programs()
            for impl in program.impls
            if impl in impls
        ],
    )


def marks(program: Program, least: int | None) -> list[Any]:
    lacks = program.lacks() if gpus.HAS else ""
    return gpus.row(least or program.least, program.most, lacks)


@functools.cache
def outcome_of(program: Program, impl: str) -> Outcome:
    """Runs a program once. Three tests read its outcome."""
    return fed_back_programs.outcome_of(program, impl)


Elsewhere = Callable[[str, str, str], dict[str, Outcome]]


@pytest.fixture(scope="module")
def elsewhere(request: pytest.FixtureRequest) -> Elsewhere:
    """The outcomes of the selected programs with another jaxlib, or on as many CPU devices."""
    selected = [getattr(item, "callspec", None) for item in request.session.items]
    programs = [each.params.get("program") for each in selected if each]
    names = list(dict.fromkeys(program.name for program in programs if program))

    @functools.cache
    def outcomes(python: str, platform: str, impl: str) -> dict[str, Outcome]:
        answers = interpreters.answer(
            [str(interpreters.TESTS / "fed_back_programs.py"), impl, *names],
            python=python,
            settings={"JAX_PLATFORMS": platform},
            devices=gpus.HAS,
            timeout_s=TIMEOUT_S,
        )
        return {name: Outcome(*answer) for name, answer in answers.items()}

    return outcomes


def of_stock(elsewhere: Elsewhere, program: Program, impl: str) -> Outcome:
    outcome = elsewhere(interpreters.stock_python(), "cuda", impl)[program.name]
    if outcome.outcome != "ok":
        pytest.skip(f"stock {outcome.outcome}")
    return outcome


def of_ours(elsewhere: Elsewhere, program: Program, impl: str) -> Outcome:
    """Our outcome of a program. If stock raises the error too, the test is skipped."""
    outcome = outcome_of(program, impl)
    if outcome.outcome != "ok":
        of_stock(elsewhere, program, impl)
    return outcome


@each()
def test_a_program_makes_one_entry_a_placement(
    program: Program, impl: str, elsewhere: Elsewhere
) -> None:
    made = of_ours(elsewhere, program, impl)

    assert (made.entries, made.outcome) == (list(program.goal), "ok")


@each(least=1)
def test_a_program_computes_the_values_of_stock(
    program: Program, impl: str, elsewhere: Elsewhere
) -> None:
    expected = of_stock(elsewhere, program, impl)

    assert outcome_of(program, impl).bits == expected.bits


@each(least=1, impls=(KEYS_ALIKE,))
def test_a_program_makes_the_same_entries_and_keys_as_on_cpus(
    program: Program, impl: str, elsewhere: Elsewhere
) -> None:
    made = of_ours(elsewhere, program, impl)

    expected = elsewhere(sys.executable, "cpu", impl)[program.name]

    assert (made.entries, made.keys) == (expected.entries, expected.keys)


DONATING = [
    pytest.param(first, step, id=name, marks=gpus.row(1, 4))
    for name, first, step in (
        ("scalar key", fed_back.SCALAR, reproduction.next_key),
        ("key matrix", fed_back.MATRIX, fed_back.reversed_rows),
    )
]


@pytest.mark.parametrize(("first", "step"), DONATING)
def test_every_fed_back_donated_key_is_deleted(first: Any, step: Any) -> None:
    keys = [first(KEYS_ALIKE)]
    f = fed_back.fresh(step, donate_argnums=0)

    for _ in range(4):
        keys.append(f(keys[-1]))

    assert [base_array(key).is_deleted() for key in keys] == [True] * 4 + [False]


@pytest.mark.parametrize("_", [pytest.param("", id="key matrix", marks=gpus.row(1, 4))])
def test_a_key_asked_for_in_the_host_s_memory_stays_there(_: str) -> None:
    place = placements.of_mesh(jax.P("a"), memory="pinned_host")()
    f = fed_back.fresh(fed_back.bumped, out_shardings=place)
    key = jax.device_put(reproduction.keys(KEYS_ALIKE, (4, 4)), place)

    kinds = [base_array(key := f(key)).sharding.memory_kind for _ in range(3)]

    assert (kinds, f._cache_size()) == (["pinned_host"] * 3, 1)
