"""The report of small programs that follow public reports."""

from __future__ import annotations

import re

import pytest

import interpreters
from libraries import imported
from paths import ROOT
from reports import rows

CASES = "tests/cases"


def lines_with(text: str, case: str) -> list[int]:
    """The numbers of the lines of a case that contain a text."""
    lines = (ROOT / CASES / f"{case}.py").read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if text in line]


def test_two_functions_of_one_name_are_two_rows_at_the_users_lines() -> None:
    imported("equinox")

    found = rows(f"{CASES}/named_alike.py")["functions"]

    lines = lines_with("@eqx.filter_jit", "named_alike")
    assert [(row["function"], row["functions"], row["causes"]) for row in found] == [
        ("step", 1, [])
    ] * 2
    assert {row["defined_at"] for row in found} == {
        f"{CASES}/named_alike.py:{line}" for line in lines
    }


def test_two_objects_with_an_inherited_call_are_two_rows_at_the_users_def() -> None:
    found = rows(f"{CASES}/inherited_call.py")["functions"]

    (line,) = lines_with("def __call__", "inherited_call")
    assert sorted((row["function"], row["defined_at"]) for row in found) == [
        ("Double", f"{CASES}/inherited_call.py:{line}"),
        ("Total", f"{CASES}/inherited_call.py:{line}"),
    ]
    assert [row["causes"] for row in found] == [[], []]


def test_scans_outside_jit_have_the_users_line_and_their_reason() -> None:
    found = rows(f"{CASES}/scan_outside_jit.py")

    (line,) = lines_with("jax.lax.scan(", "scan_outside_jit")
    at = f"{CASES}/scan_outside_jit.py:{line}"
    (scan,) = (row for row in found["compilations"] if row["functions"] == ["scan"])
    (cause,) = scan["causes"]
    assert found["functions"] == []
    assert (scan["called_from"], scan["compiled"]) == (f"{at} (sample)", 5)
    assert (cause["times"], cause["said"]) == (4, [
        f"scan again: <lambda> at {at} is another function in each call",
        f"to fix it: define <lambda> at {at} once, outside the loop, or make the call inside a "
        "jitted function",
    ])  # fmt: skip


def test_a_call_that_compiles_again_after_ahead_of_time_says_how_it_differs() -> None:
    found = rows(f"{CASES}/compiled_ahead.py")

    (step,) = found["functions"]
    (cause,) = step["causes"]
    (ahead,) = (row for row in found["compilations"] if row["kind"] == "ahead of time")
    (line,) = lines_with(".compile()", "compiled_ahead")
    assert (ahead["called_from"], ahead["compiled"]) == (
        f"{CASES}/compiled_ahead.py:{line} (<module>)", 1,
    )  # fmt: skip
    assert (step["slow_dispatches"], step["compiled"], step["lost_ms"] > 0) == (1, 1, True)
    said = re.sub(r"P\('data',?\)", "P('data')", cause["said"][0])
    assert said == (
        "batch['x']: differs from what was compiled ahead of time: was unsharded, now P('data')"
    )


def printed(case: str) -> str:
    done = interpreters.run([f"{CASES}/{case}.py"], devices=4, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_compilation_after_the_listeners_were_cleared_is_still_one() -> None:
    assert "(traced, lowered, compiled)" in printed("listeners_cleared")


def test_a_thousand_similar_misses_are_one_message() -> None:
    length = int(printed("thousand_steps").split()[0])

    assert length < 500


@pytest.mark.parametrize("case", ["thousand_steps"])
def test_a_thousand_misses_are_a_dozen_lines_of_the_report(case: str) -> None:
    done = interpreters.run(
        ["-m", "jaxlib.fastpath_report", f"{CASES}/{case}.py"], devices=4, cwd=ROOT
    )

    assert "\n  1,000 times, " in done.stderr
    assert len(done.stderr.splitlines()) <= 12
