"""The reproduction as a program: its output, and that it tells stock from fixed."""

from __future__ import annotations

from typing import Any

import pytest

import interpreters

SCRIPT = str(interpreters.TESTS / "reproduction.py")
FIELDS = {
    "section", "case", "run", "entries", "goal", "traces", "goal_traces", "spec", "outcome",
    "goal_outcome", "slow_ms", "steady_ms", "ok",
}  # fmt: skip


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    return interpreters.answer([SCRIPT, "--json"], devices=4)


@pytest.fixture(scope="module")
def stock() -> dict[str, Any]:
    python = interpreters.stock_python()
    return interpreters.answer([SCRIPT, "--json"], python=python, devices=4)


def test_with_the_fix_every_row_is_as_it_should_be(ours: dict[str, Any]) -> None:
    assert [row["case"] for row in ours["rows"] if not row["ok"]] == []


def test_with_the_fix_the_report_says_fixed(ours: dict[str, Any]) -> None:
    assert (ours["fixed"], ours["ok"]) == (True, True)


def test_without_the_fix_the_report_says_so(stock: dict[str, Any]) -> None:
    assert (stock["fixed"], stock["ok"]) == (False, False)


def test_every_row_has_every_field(ours: dict[str, Any]) -> None:
    assert [row for row in ours["rows"] if row.keys() != FIELDS] == []


def test_the_rows_are_those_of_both_sections(ours: dict[str, Any]) -> None:
    assert [row["section"] for row in ours["rows"]] == [1] * 13 + [2] * 7


def test_with_the_rule_off_the_rows_are_stock_s(stock: dict[str, Any]) -> None:
    off = {"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "0"}

    ours = interpreters.answer([SCRIPT, "--json"], devices=4, settings=off)

    assert [row["entries"] for row in ours["rows"]] == [row["entries"] for row in stock["rows"]]


def test_a_wrong_row_does_not_change_the_exit_status() -> None:
    off = {"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "0"}

    done = interpreters.run([SCRIPT], devices=4, settings=off)

    assert (done.returncode, "NOT OK" in done.stdout) == (0, True)
