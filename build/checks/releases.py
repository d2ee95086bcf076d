"""Runs all tests on several jaxlib releases, and makes a table of release and test module."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table

from checks.pytest_runs import Tally, in_parallel, outcomes_of, sum_of, tally_of
from checks.testing import REQUIREMENTS, module_report, modules, settings
from machine import environments
from machine.pythons import NEWER, Interpreter, found
from paths import LOGS, VENVS
from progress import Step, advancing, results, steps
from refusal import Refusal, refusing_os_errors
from wheels import products, stock_wheel
from wheels.extensions import test_extensions

ALL = "all"
NEWEST = "newest"
_PINNED = ("0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2")
_NAME = "test-matrix"
# Test modules that meet no jaxlib: they run for the first release alone.
_OF_NO_RELEASE = (
    "build_test.py",
    "conformance_test.py",
    "nanobind_releases_test.py",
    "pages_test.py",
    "releases_test.py",
    "wheel_fuzz_test.py",
)


class Release(NamedTuple):
    """A jaxlib release, and the Python to test it on."""

    version: str
    python: Interpreter

    @property
    def label(self) -> str:
        return f"{self.version} {self.python.abi}"


class Wheels(NamedTuple):
    """A release's wheel, and ours of it."""

    release: Release
    stock: Path
    ours: Path


class Module(NamedTuple):
    """What became of a test module on a release; it is None where pytest did not end as it does."""

    tally: Tally | None
    failures: dict[str, str]  # the first line of why, by the test's name


class Result(NamedTuple):
    """What became of a release. Where it could not be tested, it has no module but an error."""

    release: Release
    modules: dict[str, Module]
    seconds: float
    error: str = ""


def test_releases(
    names: Sequence[str], python: Interpreter, out: Path, pytest_arguments: Sequence[str]
) -> int:
    """Runs the tests on each release, and returns the exit status.

    Args:
      names: versions, to be tested on `python`; or `newest`, the newest jax there is on the newest
        Python found; or `all`, which is both, as far as there is a newer Python.
      out: where our wheels and the table are to be.

    Raises:
      Refusal: a wheel could not be had or made, or the table not written.
    """
    with steps() as step:
        wanted, left_out = releases(step, names, python)
        # One after the other: Bazel has one folder of outputs.
        wheels = [_wheels(step, each, out) for each in wanted]
    pythons = dict.fromkeys(each.release.python for each in wheels)
    cpp = {each.abi: test_extensions(each) for each in pythons}
    stop = threading.Event()
    with steps() as step:
        try:
            tested = in_parallel(
                lambda each: _test(step, each, _modules(each is wheels[0]), pytest_arguments, stop),
                wheels,
            )
        except BaseException:
            stop.set()
            raise
    show(tested)
    write(out, cpp, tested)
    for line in left_out:
        print(line)
    return judge(cpp, tested)


def releases(
    step: Step, names: Sequence[str], python: Interpreter
) -> tuple[list[Release], list[str]]:
    """What the names stand for, and a line for what `all` has to leave out.

    Raises:
      Refusal: one is no version, or there is no Python for the newest, which is asked for.
    """
    wanted = [each for name in names for each in ((*_PINNED, NEWEST) if name == ALL else (name,))]
    for name in wanted:
        if name != NEWEST and not stock_wheel.is_version(name):
            raise Refusal(f"--releases {name}: is no version; give some such as 0.10.2, or all")
    found_releases, left_out = [], []
    for name in dict.fromkeys(wanted):
        try:
            found_releases.append(newest_release(step) if name == NEWEST else Release(name, python))
        except Refusal as refusal:
            if NEWEST in names:
                raise
            left_out.append(f"left out: {refusal}")
    return found_releases, left_out


def newest_release(step: Step) -> Release:
    """The newest jaxlib that pip has for a Python that is here, and that Python.

    Raises:
      Refusal: there is none.
    """
    with step("Look for the newest Python and the newest jax for it"):
        for python in found(NEWER):
            version = stock_wheel.newest(python)
            if version:
                return Release(version, python)
    names = ", ".join(f"python{major}.{minor}" for major, minor in NEWER)
    raise Refusal(f"no Python for the newest jax; install one of {names} with its headers")


def _wheels(step: Step, release: Release, out: Path) -> Wheels:
    stock = products.fetched(step, release.version, release.python)
    return Wheels(release, stock, products.our_wheel(step, stock, release.python, out))


def _modules(is_first: bool) -> list[str]:
    return [name for name in modules() if is_first or Path(name).name not in _OF_NO_RELEASE]


def _test(
    step: Step,
    wheels: Wheels,
    names: Sequence[str],
    arguments: Sequence[str],
    stop: threading.Event,
) -> Result:
    release, start = wheels.release, time.monotonic()
    tested: dict[str, Module] = {}
    error = ""
    try:
        with (
            _environments(step, wheels) as (ours, stock),
            step(f"Test on jaxlib {release.label}") as report,
        ):
            advance = advancing(report, len(names))
            for name in names:
                if stop.is_set():
                    break
                tested[Path(name).name] = _module(name, wheels, ours, stock, arguments)
                advance(1)
    except Refusal as refusal:
        error = str(refusal)
    return Result(release, tested, time.monotonic() - start, error)


@contextmanager
def _environments(step: Step, wheels: Wheels) -> Iterator[tuple[Path, Path]]:
    """A Python with our wheel and one with the stock one.

    Those of all releases would take many gigabytes, so what was not there before is deleted.
    """
    python = wheels.release.python
    before = set(VENVS.glob("*"))
    made = []
    try:
        for kind, wheel, more in (("test", wheels.ours, REQUIREMENTS), ("stock", wheels.stock, ())):
            made.append(products.jax_environment(step, kind, wheel, python, more))
        yield made[0], made[1]
    finally:
        for each in made:
            if each.parent.parent not in before:
                environments.delete(each.parent.parent)


def _module(name: str, wheels: Wheels, ours: Path, stock: Path, arguments: Sequence[str]) -> Module:
    log = _logs(wheels.release) / f"{Path(name).stem}.log"
    report = module_report(name, ours, settings(stock, wheels.stock, wheels.ours), arguments, log)
    if report is None:
        return Module(None, {"(the whole module)": "did not end as pytest does"})
    outcomes = outcomes_of(report)
    failures = {test: each.reason for test, each in outcomes.items() if each.kind == "failed"}
    return Module(tally_of(report), failures)


def _logs(release: Release) -> Path:
    return LOGS / f"test-{release.version}-{release.python.abi}"


def matrix(tested: Sequence[Result]) -> list[list[str]]:
    """The table, as rows of cells; the first has the releases."""
    names = dict.fromkeys(name for result in tested for name in result.modules)
    return [
        ["passed / failed / skipped", *(result.release.label for result in tested)],
        *([name, *(_cell(result.modules.get(name)) for result in tested)] for name in names),
        ["all", *(_cell(_sum(result)) for result in tested)],
        ["seconds", *(f"{result.seconds:.0f}" for result in tested)],
    ]


def _cell(module: Module | None) -> str:
    if module is None:
        return ""
    return "crashed" if module.tally is None else " / ".join(map(str, module.tally))


def _sum(result: Result) -> Module:
    return Module(sum_of(each.tally for each in result.modules.values() if each.tally), {})


def show(tested: Sequence[Result]) -> None:
    """Prints the table."""
    head, *rows = matrix(tested)
    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    results().print(table, highlight=False)


def write(out: Path, cpp: dict[str, bool], tested: Sequence[Result]) -> None:
    """Writes the table as JSON, with every failure, and as Markdown.

    Raises:
      Refusal: it cannot be written.
    """
    head, *rows = matrix(tested)
    lines = [head, ["---"] * len(head), *rows]
    facts = {"cpp": cpp, "releases": [_facts(result) for result in tested]}
    with refusing_os_errors(f"write to {out}"):
        (out / f"{_NAME}.md").write_text("".join(f"| {' | '.join(row)} |\n" for row in lines))
        (out / f"{_NAME}.json").write_text(json.dumps(facts, indent=1) + "\n")


def _facts(result: Result) -> dict:
    return {
        "jaxlib": result.release.version,
        "python": "{}.{}".format(*result.release.python.version),
        "seconds": round(result.seconds, 1),
        "error": result.error,
        "modules": {
            name: {"tally": each.tally and each.tally._asdict(), "failures": each.failures}
            for name, each in result.modules.items()
        },
    }


def judge(cpp: dict[str, bool], tested: Sequence[Result]) -> int:
    """Prints what went wrong, and returns the exit status."""
    wrong = [f"the C++ tests fail for {abi}" for abi, passed in cpp.items() if not passed]
    for result in tested:
        label = result.release.label
        failures = [
            f"{label}: {name}::{test}: {reason}"
            for name, each in result.modules.items()
            for test, reason in each.failures.items()
        ]
        if result.error:
            wrong.append(f"{label}: {result.error}")
        elif not _sum(result).tally.passed:
            wrong.append(f"{label}: no test passed")
        if failures:
            wrong += [*failures, f"{label}: what pytest said is in {_logs(result.release)}"]
    for line in wrong:
        print(line)
    return 1 if wrong else 0
