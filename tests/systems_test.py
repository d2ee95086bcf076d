"""The results that `build.py systems` reads from its commands, and its page."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import systems as command
from refusal import Refusal
from systems import chroot, every_wheel, key_tests, matrix, output, results
from systems.matrix import Row

ROW = Row("Debian 13", "x86_64", "3.13.5", "0.10.2", "built there", "demo", "every row")


GOAL = "Ours reaches the goal in every row."
TALLY = "5 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize(
    ("of", "said", "result"),
    [
        (results.of_demo, f"a table\n{GOAL} The wheel: w\n", "every row reaches its goal"),
        (results.of_demo, "a table\nours misses the goal: x\n", "FAILED: ours misses the goal: x"),
        (results.of_demo, "", "FAILED: it said nothing"),
        (results.of_tests, f"C++ tests, cp311: passed\n{TALLY}\n", f"{TALLY}; C++ tests passed"),
        (results.of_tests, f"C++ tests, cp311: FAILED\n{TALLY}\n", f"{TALLY}; C++ tests FAILED"),
        (results.of_tests, f"C++ tests, and tests of the build: left out\n{TALLY}\n", TALLY),
        (results.of_tests, "build.py: no\n\n", "FAILED: build.py: no"),
        (results.of_pytest, "..\n2 passed in 0.5s\n", "2 passed"),
        (results.of_pytest, "== 1 failed, 2 passed in 81.64s (0:01:21) ==\n", "1 failed, 2 passed"),
        (results.of_pytest, "..\nSegmentation fault\n", "FAILED: Segmentation fault"),
    ],
)
def test_a_result_is_read_from_the_output_of_the_command(
    of: Callable[[str], str], said: str, result: str
) -> None:
    assert of(said) == result


@pytest.mark.parametrize(
    ("result", "went_well"),
    [
        ("every row reaches its goal", True),
        ("214 passed, 0 failed, 3 skipped; C++ tests passed", True),
        ("214 passed, 10 failed, 3 skipped; C++ tests passed", False),
        ("214 passed, 0 failed, 3 skipped; C++ tests FAILED", False),
        ("12 errors", False),
        ("1 error, 3 passed", False),
        ("FAILED: Segmentation fault", False),
    ],
)
def test_a_row_knows_a_failure(result: str, went_well: bool) -> None:
    assert ROW._replace(result=result).went_well is went_well


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(matrix, "_PAGE", tmp_path / "systems.md")
    monkeypatch.setattr(matrix, "_ROWS", tmp_path / "systems.json")
    return tmp_path / "systems.md"


def cells(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def test_a_new_row_replaces_only_the_old_row_of_the_same_check(page: Path) -> None:
    for row in (ROW, ROW._replace(check="all tests"), ROW._replace(result="FAILED: no")):
        matrix.record(row)

    found = [(line[5], line[6]) for line in cells(page)]
    assert found == [("all tests", "every row"), ("demo", "FAILED: no")]


def test_a_row_has_its_date_and_its_commit(page: Path) -> None:
    matrix.record(ROW)

    (line,) = cells(page)
    assert line[:7] == list(ROW[:7])
    assert [len(part) for part in line[7].split("-")] == [4, 2, 2]
    assert line[8]


def test_rows_are_in_the_order_of_their_numbers(page: Path) -> None:
    for python in ("3.14.1", "3.9.2", "3.13.10", "3.13.5"):
        matrix.record(ROW._replace(python=python))

    assert [line[2] for line in cells(page)] == ["3.9.2", "3.13.5", "3.13.10", "3.14.1"]


@pytest.mark.parametrize("content", ["{", '["a"]', '[{"system": 1}]'])
def test_rows_that_cannot_be_read_are_refused(page: Path, content: str) -> None:
    page.with_suffix(".json").write_text(content)

    with pytest.raises(Refusal, match=r"is not what build\.py wrote"):
        matrix.record(ROW)

    assert not page.exists()


def test_the_page_of_this_repository_shows_its_rows() -> None:
    rows = [Row(**each) for each in json.loads(matrix._ROWS.read_text())]

    assert matrix._PAGE.read_text() == matrix.page(rows)


def test_a_wheel_that_was_only_built_is_shown_as_that() -> None:
    name = "jaxlib-0.10.2+physical1-{0}-{0}-manylinux_2_27_{1}.whl"
    wheels = [name.format("cp313", "x86_64"), name.format("cp314", "aarch64")]
    said = f"""
Write the index: done, 1.0 s
 jaxlib   Python   machine   MB                wheel
 ───────────────────────────────────────────────────
 0.10.2   cp313    x86_64    81   tried        {wheels[0]}
 0.10.2   cp314    aarch64   79   built only   {wheels[1]}
 0.10.2   cp314t   aarch64                     no stock wheel
2 wheels, 0.2 GB; tried: installed here, and the rule is on
"""

    found = [(row.python, row.machine, row.wheel, row.result) for row in every_wheel.rows(said)]

    assert found == [
        ("cp313", "x86_64", "wheelhouse, manylinux_2_27_x86_64", "installed here: the rule is on"),
        ("cp314", "aarch64", "wheelhouse, manylinux_2_27_aarch64", "built only"),
    ]


def test_every_key_test_exists() -> None:
    folder = Path(__file__).parent.parent

    assert [name for name in key_tests.FILES if not (folder / name).is_file()] == []


def run_command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def test_an_unknown_system_is_refused() -> None:
    with pytest.raises(Refusal, match=r"^plan9: is not a system; give one of cp312, cp313, "):
        run_command("plan9")


def test_a_system_that_cannot_be_made_is_named_and_the_next_one_is_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], page: Path
) -> None:
    def cannot(folder: Path) -> list[Row]:
        raise Refusal("no such mirror")

    systems = {"one": cannot, "two": lambda folder: [ROW]}
    monkeypatch.setattr(command, "_SYSTEMS", systems)

    status = run_command("one", "two")

    assert status == 1
    assert capsys.readouterr().out.splitlines() == [
        "one: no such mirror",
        "two: 3.13.5, demo: every row",
    ]
    assert len(cells(page)) == 1


def test_a_user_who_is_not_root_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(Refusal, match=r"^only root"):
        chroot.made(tmp_path / "system", "trixie")

    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(Refusal, match=r"^no-such-program is missing; install"):
        chroot.require("no-such-program")


def test_both_outputs_of_a_command_are_returned() -> None:
    assert output.told(["sh", "-c", "echo one; echo two >&2"]) == "one\ntwo\n"


@pytest.mark.parametrize(
    ("program", "says"),
    [("echo last; exit 3", "failed: last$"), ("exit 3", "failed: it said nothing$")],
)
def test_a_failed_command_is_refused_with_its_last_line(program: str, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        output.told(["sh", "-c", program])


def test_a_failed_command_that_may_fail_is_not_refused() -> None:
    assert output.told(["sh", "-c", "echo no; exit 1"], fails=True) == "no\n"
