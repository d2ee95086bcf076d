"""`build.py test --releases`: the releases and their Pythons, the table, and the exit status."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checks import releases, testing
from checks.pytest_runs import Outcome, Tally, in_parallel, outcomes_of
from checks.testing import Module, Release, Result, Wheels
from machine import environments, pythons
from machine.pythons import Interpreter
from refusal import Refusal
from wheels import products, stock_wheel

TESTS = Path(__file__).parent
THIS = pythons.examine(sys.executable)
OLD = Release("0.6.2", THIS._replace(version=(3, 11)))
NEW = Release("0.12.0", THIS._replace(version=(3, 13)))
FINE = Module(Tally(3, 0, 1), {})
FAILED = Module(Tally(2, 1, 0), {"test_a": "assert 1 == 2"})
CRASHED = Module(None, {"(the whole module)": "pytest ended without a report"})

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


@pytest.mark.parametrize(
    ("names", "versions"),
    [
        (["all", "0.6.2"], ["0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2", "0.12.0"]),
        (["others"], ["0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.12.0"]),
        (["0.8.3", "newest"], ["0.8.3", "0.12.0"]),
    ],
)
def test_the_newest_release_runs_on_the_newest_python_and_others_on_the_given_one(
    names: list[str], versions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "found", lambda versions, **_: iter([NEW.python]))
    monkeypatch.setattr(stock_wheel, "newest", lambda python: "0.12.0")

    wanted, left_out = releases.releases(step, names, THIS)

    pythons = [*[THIS] * (len(versions) - 1), NEW.python]
    assert wanted == list(map(Release, versions, pythons))
    assert left_out == []


def test_all_without_a_newer_python_names_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(releases, "found", lambda versions, **_: iter(()))

    wanted, left_out = releases.releases(step, ["all"], THIS)

    assert [each.python for each in wanted] == [THIS] * 5
    (line,) = left_out
    assert line.startswith("left out: no Python for the newest jax; install one of python3.14")


def wheels_of(release: Release) -> Wheels:
    return Wheels(release, Path("stock.whl"), Path("ours.whl"))


DEFAULT = Release("0.10.2", THIS)


@pytest.mark.parametrize(
    ("names", "tested", "runs"),
    [
        (["all"], [OLD, DEFAULT, NEW], DEFAULT),
        (["0.6.2", "newest"], [OLD, NEW], OLD),
        (["others"], [OLD, NEW], None),
    ],
)
def test_modules_that_do_not_depend_on_the_release_run_once(
    names: list[str], tested: list[Release], runs: Release | None
) -> None:
    once = releases.once(list(map(wheels_of, tested)), names)

    assert (once and once.release) == runs


def test_modules_that_run_once_do_not_import_jax() -> None:
    once = [TESTS / Path(name).name for name in testing.modules() if not testing.runs(name, False)]

    assert {path.name for path in once} == set(testing.RUN_ONCE)
    assert not any(re.search(r"^(import|from) (jax|interpreters)", path.read_text(), re.MULTILINE)
                   for path in once)  # fmt: skip


def test_arguments_that_name_tests_choose_them() -> None:
    one = "tests/pickle_test.py::test_some"

    assert testing.selected([one, "-k", "pickle"]) == ([one], ["-k", "pickle"])
    assert testing.selected(["-x"]) == (testing.modules(), ["-x"])


def test_an_argument_that_names_no_test_module_is_refused() -> None:
    with pytest.raises(Refusal, match=r"tests/gone_test\.py::test_a: no such test module"):
        testing.selected(["tests/gone_test.py::test_a"])


class Runs:
    """Stands in for environments and pytest, and records what is made, run and deleted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.made: list[str] = []
        self.ran: list[str] = []
        self.deleted: list[str] = []
        monkeypatch.setattr(testing, "VENVS", folder)
        monkeypatch.setattr(testing, "modules", lambda: ["tests/a_test.py", "tests/b_test.py"])
        monkeypatch.setattr(testing, "_run", self._run)
        monkeypatch.setattr(products, "jax_environment", self._made)
        monkeypatch.setattr(environments, "delete", lambda path: self.deleted.append(path.name))
        self._folder = folder

    def _made(self, step: object, kind: str, jaxlib: Path, python: Interpreter, more=()) -> Path:
        self.made.append(kind)
        if jaxlib.name == "broken.whl":
            raise Refusal("uv pip install failed")
        return self._folder / f"{kind}-{len(self.made)}" / "bin" / "python"

    def _run(self, module: str, wheels: Wheels, *_: object, is_only: bool) -> Module:
        self.ran.append(f"{wheels.release.version} {module}")
        return FINE


def test_each_release_has_its_environments_made_once_and_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs, lines = Runs(monkeypatch, tmp_path), []

    tested = testing.test(step, [wheels_of(OLD), wheels_of(NEW)], [], lines.append, None)

    assert [result.modules for result in tested] == [{"a_test.py": FINE, "b_test.py": FINE}] * 2
    assert sorted(runs.made) == ["stock", "stock", "test", "test"]
    assert len(runs.deleted) == 4
    assert sorted(runs.ran) == [
        "0.12.0 tests/a_test.py",
        "0.12.0 tests/b_test.py",
        "0.6.2 tests/a_test.py",
        "0.6.2 tests/b_test.py",
    ]
    assert lines[-1].startswith("[4/4] ")
    assert lines[-1].endswith("3 passed, 0 failed, 1 skipped, 0 s")


def test_the_environments_of_a_single_release_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = Runs(monkeypatch, tmp_path)

    testing.test(step, [wheels_of(OLD)], [], lambda line: None, None)

    assert (sorted(runs.made), runs.deleted) == (["stock", "test"], [])


def test_a_release_without_environments_has_an_error_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = Runs(monkeypatch, tmp_path)
    broken = Wheels(OLD, Path("stock.whl"), Path("broken.whl"))

    first, second = testing.test(step, [broken, wheels_of(NEW)], [], lambda line: None, None)

    assert (first.modules, first.error) == ({}, "uv pip install failed")
    assert runs.made.count("test") == 2
    assert len(second.modules) == 2


def test_a_python_that_pip_has_no_jax_for_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {OLD.python: "0.10.2", NEW.python: None}
    monkeypatch.setattr(releases, "found", lambda versions, **_: iter([NEW.python, OLD.python]))
    monkeypatch.setattr(stock_wheel, "newest", answers.get)

    assert releases.releases(step, ["newest"], THIS) == ([Release("0.10.2", OLD.python)], [])


def test_no_newer_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "found", lambda versions, **_: iter(()))

    with pytest.raises(Refusal, match=r"install one of python3\.14"):
        releases.releases(step, ["newest"], THIS)


def test_a_text_that_is_no_version_is_refused() -> None:
    with pytest.raises(Refusal, match="--releases old: is not a version"):
        releases.releases(step, ["0.6.2", "old"], THIS)


@pytest.fixture
def pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pyenv folder with two releases of this Python, a broken one, and the shim."""
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


def test_a_python_without_headers_builds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = THIS._replace(has_headers=False)
    monkeypatch.setattr(pythons, "examine", lambda _: bare)

    assert list(pythons.found([THIS.version])) == []
    assert list(pythons.found([THIS.version], to_build=False)) == [bare]


def test_the_table_has_a_row_a_module_and_a_column_a_release() -> None:
    tested = [
        Result(OLD, {"a_test.py": FINE._replace(seconds=10.4), "b_test.py": CRASHED}),
        Result(NEW, {"a_test.py": FAILED._replace(seconds=5.0)}),
    ]

    assert releases.matrix(tested) == [
        ["passed / failed / skipped", "0.6.2 cp311", "0.12.0 cp313"],
        ["a_test.py", "3 / 0 / 1", "2 / 1 / 0"],
        ["b_test.py", "crashed", ""],
        ["all", "3 / 0 / 1", "2 / 1 / 0"],
        ["seconds", "10", "5"],
    ]


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        ([], {"cp311": True}),
        (["-k", "key"], {"cp311": True}),
        (["tests/releases_test.py"], {}),
        (["-q", "tests/releases_test.py::test_a"], {}),
    ],
)
def test_cpp_tests_run_unless_test_modules_are_named(
    arguments: list[str], ran: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "test_extensions", lambda python: True)

    assert (
        testing.cpp_tests([THIS._replace(version=(3, 11), free_threaded=False)], arguments) == ran
    )


@pytest.mark.parametrize(
    ("cpp", "result", "says"),
    [
        (True, Result(OLD, {"a_test.py": FINE}), ""),
        (False, Result(OLD, {"a_test.py": FINE}), "C++ tests, cp311: FAILED"),
        (True, Result(OLD, {"a_test.py": FAILED}), "a_test.py::test_a: assert 1 == 2"),
        (True, Result(OLD, {"a_test.py": FINE, "b_test.py": CRASHED}), "ended without a report"),
        (True, Result(OLD, {}, "pip install failed"), "0.6.2 cp311: pip install failed"),
        (True, Result(OLD, {"a_test.py": Module(Tally(0, 0, 4), {})}), "no test passed"),
    ],
)
def test_each_failure_is_named_and_fails_the_run(
    cpp: bool, result: Result, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert testing.judge({"cp311": cpp}, [result]) == (1 if says else 0)

    assert says in capsys.readouterr().out
