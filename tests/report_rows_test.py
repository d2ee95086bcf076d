"""The rows of the report: one for each function, and one for each other line that compiles."""

from __future__ import annotations

import weakref
from typing import Any

import jaxlib.pjit
import pytest
from jaxlib._fastpath_report_rows import Beside, Cause, Report, Row


def dispatch(
    function: str, seconds: float, reason: str | None, number: int = 1, lineage: int = 0
) -> jaxlib.pjit.Dispatch:
    """A function's first dispatch, or one with a reason."""
    return jaxlib.pjit.Dispatch(
        function, number, "f.py:1", f"{function}.py:{seconds}", seconds, 0, 0, 1, 2,
        reason is None, (), reason, 0, lineage=lineage,
    )  # fmt: skip


def compilation(function: str, seconds: float, line: str, **why: Any) -> jaxlib.pjit.Compilation:
    return jaxlib.pjit.Compilation(
        function, "operation outside jit", line, "", seconds, 1, 1, 1, **why
    )


def rows_of(dispatches: list[jaxlib.pjit.Dispatch]) -> list[Row]:
    report = Report()
    for each in dispatches:
        report.add(each)
    return report.rows()


def beside_of(compilations: list[jaxlib.pjit.Compilation]) -> list[Beside]:
    report = Report()
    for each in compilations:
        report.add_compilation(each)
    return report.beside()


def test_a_report_keeps_no_dispatch() -> None:
    report = Report()
    added = dispatch("f", 1.0, "a")
    reference = weakref.ref(added)

    report.add(added)
    del added

    assert reference() is None


def test_rows_add_up_and_the_costliest_comes_first() -> None:
    found = [
        dispatch("cheap", 9.0, None),
        dispatch("cheap", 0.001, "a"),
        dispatch("dear", 1.0, "b"),
        dispatch("dear", 2.0, "c"),
        dispatch("dear", 1.5, "b"),
    ]

    dear, cheap = rows_of(found)

    assert (dear.function, dear.slow_dispatches, dear.misses, dear.compiled) == ("dear", 3, 3, 3)
    assert (dear.first_ms, dear.lost_ms) == (0.0, 4500.0)
    assert (cheap.function, cheap.first_ms, cheap.lost_ms) == ("cheap", 9000.0, 1.0)


def test_the_same_message_comes_once_with_a_count() -> None:
    found = [dispatch("f", 1.0, None)] + [dispatch("f", 0.5, "a") for _ in range(1000)]

    (row,) = rows_of(found)

    assert row.causes == (Cause(1000, 500000.0, "f.py:0.5", ("never takes the fastpath: a",)),)


ANEW = "jitted again: {} functions from one place"

# The dispatches of one lineage: seconds, reason (None for a first dispatch), and number of the
# function. Then functions, misses and ms lost of its row, and of its chief cause the start of the
# message and the worst call.
LINEAGES = (
    ([(9, None, 1)], (1, 0, 0), None),
    ([(9, None, 1), (8, None, 1)], (1, 0, 0), None),  # in two threads at once
    ([(9, None, 1), (2, None, 2)], (2, 0, 2000), (ANEW.format(2), "f.py:2")),
    (
        [(1, None, 1), (8, "a", 1), (4, None, 2), (5, None, 3), (2, "b", 3)],
        (3, 2, 19000),
        (ANEW.format(3), "f.py:5"),
    ),
    (
        [(9, None, 1), (3, "a", 1), (2, None, 2), (1, "b", 2)],
        (2, 2, 6000),
        ("never takes the fastpath: a", "f.py:3"),
    ),
    (
        [(4, "a", 1), (9, None, 1), (1, "a", 1)],
        (1, 2, 5000),
        ("never takes the fastpath: a", "f.py:4"),
    ),
)


@pytest.mark.parametrize(("dispatches", "figures", "chief"), LINEAGES)
def test_functions_of_one_lineage_are_one_that_is_jitted_again(
    dispatches: list[tuple[float, str | None, int]],
    figures: tuple[int, int, int],
    chief: tuple[str, str] | None,
) -> None:
    (row,) = rows_of([dispatch("f", *each) for each in dispatches])

    assert (row.functions, row.misses, row.lost_ms) == figures
    assert row.slow_dispatches == len(dispatches)
    first = [(cause.said[0], cause.worst_call) for cause in row.causes[:1]]
    assert first == ([] if chief is None else [chief])


def test_functions_of_one_place_and_two_lineages_are_two_rows() -> None:
    rows = rows_of([dispatch("f", 1.0, None, number, lineage=number) for number in (1, 2)])

    assert [(row.functions, row.lost_ms) for row in rows] == [(1, 0.0), (1, 0.0)]


def test_other_compilations_have_a_row_for_each_of_the_users_lines() -> None:
    found = [
        compilation("add", 1.0, "a.py:1"),
        compilation("scan", 2.0, "a.py:1"),
        compilation("scan", 4.0, "b.py:2"),
    ]

    assert beside_of(found) == [
        Beside("b.py:2", "operation outside jit", ("scan",), 1, 4000.0, ()),
        Beside("a.py:1", "operation outside jit", ("add", "scan"), 2, 3000.0, ()),
    ]


def test_a_thousand_shapes_of_an_operation_have_one_cause() -> None:
    found = [
        compilation("add", 0.5, "a.py:1", reason=f"argument 0: was f[{n}], now f[{n + 1}]")
        for n in range(1000)
    ]

    ((cause,),) = (row.causes for row in beside_of(found))

    assert (cause.times, cause.said) == (1000, ("add again: argument 0: was f[0], now f[1]",))


def test_a_message_may_contain_braces() -> None:
    (row,) = rows_of([dispatch("f", 1.0, "{'a': 1}")])

    assert row.causes[0].said == ("never takes the fastpath: {'a': 1}",)
