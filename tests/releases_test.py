"""`build.py test --releases`: which are tested on what, the table, and the exit status."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checks import releases
from checks.pytest_runs import Outcome, Tally, in_parallel, outcomes_of
from checks.releases import Module, Release, Result
from machine import pythons
from machine.pythons import Interpreter
from refusal import Refusal
from wheels import stock_wheel

TESTS = Path(__file__).parent
THIS = pythons.examine(sys.executable)
OLD = Release("0.6.2", THIS._replace(version=(3, 11)))
NEW = Release("0.12.0", THIS._replace(version=(3, 13)))
FINE = Module(Tally(3, 0, 1), {})
FAILED = Module(Tally(2, 1, 0), {"test_a": "assert 1 == 2"})
CRASHED = Module(None, {"(the whole module)": "did not end as pytest does"})

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
  <testcase classname="tests.a_test" name="test_passes[1.5-x]"/>
  <testcase classname="tests.a_test.SomeTest" name="test_skips">
    <skipped message="no GPU"/></testcase>
  <testcase classname="tests.a_test" name="test_fails">
    <failure message="assert 1 == 2&#10;and more">...</failure></testcase>
  <testcase classname="tests.a_test" name="test_ends_badly"/>
  <testcase classname="tests.a_test" name="test_ends_badly"><error message="late"/></testcase>
</testsuite></testsuites>"""


def step(label: str) -> contextlib.AbstractContextManager:
    return contextlib.nullcontext(lambda part: None)


def python_of(folder: Path, name: str, text: str = 'exec "$REAL" "$@"') -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_report_tells_each_tests_outcome() -> None:
    assert outcomes_of(REPORT) == {
        "test_passes[1.5-x]": Outcome("passed"),
        "SomeTest::test_skips": Outcome("skipped", "no GPU"),
        "test_fails": Outcome("failed", "assert 1 == 2"),
        "test_ends_badly": Outcome("failed", "late"),
    }


def test_results_keep_the_order_of_the_items() -> None:
    assert in_parallel(lambda each: -each, range(9)) == [-each for each in range(9)]


def test_all_is_five_releases_on_the_given_python_and_the_newest_on_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(releases, "found", lambda versions: iter([NEW.python]))
    monkeypatch.setattr(stock_wheel, "newest", lambda python: "0.12.0")

    wanted, left_out = releases.releases(step, ["all", "0.6.2"], THIS)

    assert [each.version for each in wanted] == [
        "0.6.2",
        "0.7.2",
        "0.8.3",
        "0.9.2",
        "0.10.2",
        "0.12.0",
    ]
    assert [each.python for each in wanted] == [*[THIS] * 5, NEW.python]
    assert left_out == []


def test_all_without_a_newer_python_says_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(releases, "found", lambda versions: iter(()))

    wanted, left_out = releases.releases(step, ["all"], THIS)

    assert [each.python for each in wanted] == [THIS] * 5
    (line,) = left_out
    assert line.startswith("left out: no Python for the newest jax; install one of python3.14")


def test_modules_that_meet_no_jaxlib_are_those_that_import_none() -> None:
    names = {Path(name).name for name in releases._modules(is_first=False)}

    once = [path for path in TESTS.glob("*_test.py") if path.name not in names]

    assert once
    assert not any(re.search(r"^(import|from) (jax|interpreters)", path.read_text(), re.MULTILINE)
                   for path in once)  # fmt: skip


def test_a_python_that_pip_has_no_jax_for_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {OLD.python: "0.10.2", NEW.python: None}
    monkeypatch.setattr(releases, "found", lambda versions: iter([NEW.python, OLD.python]))
    monkeypatch.setattr(stock_wheel, "newest", answers.get)

    assert releases.releases(step, ["newest"], THIS) == ([Release("0.10.2", OLD.python)], [])


def test_no_newer_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "found", lambda versions: iter(()))

    with pytest.raises(Refusal, match=r"install one of python3\.14"):
        releases.releases(step, ["newest"], THIS)


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(Refusal, match="--releases old: is no version"):
        releases.releases(step, ["0.6.2", "old"], THIS)


@pytest.fixture
def pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of pyenv's with two releases of this Python, one that is broken, and its shim."""
    name = "python{}.{}".format(*THIS.version)
    for micro in ("9", "10"):
        python_of(tmp_path / "versions" / f"{name[6:]}.{micro}" / "bin", name)
    python_of(tmp_path / "versions" / f"{name[6:]}.11" / "bin", name, "exit 1")
    python_of(tmp_path / "shims", name, "exit 127")
    monkeypatch.setenv("REAL", sys.executable)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:/usr/bin:/bin")
    yield tmp_path


def test_the_newest_of_pyenv_s_that_runs_is_found(
    pyenv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    examine = pythons.examine

    def examined(python: str) -> Interpreter:
        asked.append(python)
        return examine(python)

    monkeypatch.setattr(pythons, "examine", examined)

    (python,) = pythons.found([THIS.version])

    assert python.version == THIS.version
    assert asked[-1].split("/")[-3].endswith(".10")


def test_a_python_without_headers_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "examine", lambda _: THIS._replace(has_headers=False))

    assert list(pythons.found([THIS.version])) == []


def test_the_table_has_a_row_a_module_and_a_column_a_release() -> None:
    tested = [
        Result(OLD, {"a_test.py": FINE, "b_test.py": CRASHED}, 10.4),
        Result(NEW, {"a_test.py": FAILED}, 5.0),
    ]

    assert releases.matrix(tested) == [
        ["passed / failed / skipped", "0.6.2 cp311", "0.12.0 cp313"],
        ["a_test.py", "3 / 0 / 1", "2 / 1 / 0"],
        ["b_test.py", "crashed", ""],
        ["all", "3 / 0 / 1", "2 / 1 / 0"],
        ["seconds", "10", "5"],
    ]


def test_the_table_is_written_as_json_and_markdown(tmp_path: Path) -> None:
    releases.write(tmp_path, {"cp311": True}, [Result(OLD, {"a_test.py": FAILED}, 1.0)])

    assert (tmp_path / "test-matrix.md").read_text().splitlines()[:3] == [
        "| passed / failed / skipped | 0.6.2 cp311 |",
        "| --- | --- |",
        "| a_test.py | 2 / 1 / 0 |",
    ]
    written = json.loads((tmp_path / "test-matrix.json").read_text())
    assert written["cpp"] == {"cp311": True}
    (release,) = written["releases"]
    assert (release["jaxlib"], release["python"], release["error"]) == ("0.6.2", "3.11", "")
    assert release["modules"]["a_test.py"] == {
        "tally": {"passed": 2, "failed": 1, "skipped": 0},
        "failures": {"test_a": "assert 1 == 2"},
    }


@pytest.mark.parametrize(
    ("cpp", "result", "says"),
    [
        (True, Result(OLD, {"a_test.py": FINE}, 1.0), ""),
        (False, Result(OLD, {"a_test.py": FINE}, 1.0), "the C++ tests fail for cp311"),
        (True, Result(OLD, {"a_test.py": FAILED}, 1.0), "a_test.py::test_a: assert 1 == 2"),
        (True, Result(OLD, {"a_test.py": FINE, "b_test.py": CRASHED}, 1.0), "did not end"),
        (True, Result(OLD, {}, 1.0, "pip install failed"), "0.6.2 cp311: pip install failed"),
        (True, Result(OLD, {"a_test.py": Module(Tally(0, 0, 4), {})}, 1.0), "no test passed"),
    ],
)
def test_whatever_goes_wrong_is_named_and_fails(
    cpp: bool, result: Result, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert releases.judge({"cp311": cpp}, [result]) == (1 if says else 0)

    assert says in capsys.readouterr().out
