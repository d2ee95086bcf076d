"""Runs pytest in a process of its own, and reads the report that it leaves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar
from xml.etree import ElementTree

from refusal import Refusal

AT_ONCE = 2  # an environment's tests want a core, and a gigabyte or two of memory
PROCESSES_IN_TURN = 12  # of a module, each to its limit: a module that takes longer hangs

_NOTHING_COLLECTED = 5  # pytest's exit status
_KINDS = {"failure": "failed", "error": "failed", "skipped": "skipped"}

Item = TypeVar("Item")
Result = TypeVar("Result")


class Tally(NamedTuple):
    """What became of the tests. An error in a test's set-up is a failure."""

    passed: int
    failed: int
    skipped: int


class Outcome(NamedTuple):
    """What became of one test: passed, failed or skipped, and the first line of why."""

    kind: str
    reason: str = ""


class Row(NamedTuple):
    """A test on GPUs: what became of it, and what it says that it ran on."""

    test: str  # without its parameters
    name: str
    kind: str
    reason: str
    gpus: int  # 0 where it did not run
    device: str


def report_of(
    python: Path,
    arguments: Sequence[str],
    cwd: Path,
    environment: dict[str, str],
    log: Path | None = None,
) -> str | None:
    """Runs one pytest process, its output kept in a log where one is named.

    Returns:
      Its report in JUnit's form, or None where the process did not end as pytest does.
    """
    with tempfile.TemporaryDirectory() as folder, _output(log) as output:
        report = Path(folder) / "report.xml"
        options = ["--quiet", "--no-header", "-p", "no:cacheprovider", f"--junit-xml={report}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = subprocess.run(
                [str(python), "-m", "pytest", *options, *arguments],
                cwd=cwd,
                env=environment,
                stdout=output,
                stderr=output and subprocess.STDOUT,
                timeout=module_timeout(),
                check=False,
            ).returncode
            if status in (0, 1, _NOTHING_COLLECTED) and report.is_file():
                return report.read_text()
    return None


def module_timeout() -> int:
    """How many seconds a test module may take: more where TIMEOUT_S gives its processes more.

    Raises:
      Refusal: TIMEOUT_S is not a number of seconds.
    """
    text = os.environ.get("TIMEOUT_S", "300")
    if not text.isdecimal() or int(text) == 0:
        raise Refusal(f"TIMEOUT_S={text}: is not a number of seconds; give one such as 300")
    return PROCESSES_IN_TURN * int(text)


@contextlib.contextmanager
def _output(log: Path | None) -> Iterator[BinaryIO | None]:
    if log is None:
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        yield output


def sum_of(tallies: Iterable[Tally]) -> Tally:
    """The sum of several tallies."""
    return Tally(*map(sum, zip(Tally(0, 0, 0), *tallies)))


def tally_of(junit_xml: str) -> Tally:
    """The tally of a report."""
    counts = [
        {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        for suite in ElementTree.fromstring(junit_xml).iter("testsuite")
    ]
    failed = sum(count["failures"] + count["errors"] for count in counts)
    skipped = sum(count["skipped"] for count in counts)
    return Tally(sum(count["tests"] for count in counts) - failed - skipped, failed, skipped)


def outcomes_of(junit_xml: str) -> dict[str, Outcome]:
    """The outcome of each test of one module, by the test's name after the module's."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.fromstring(junit_xml).iter("testcase"):
        # The class name has the module's dotted name before it, and is that alone for a function.
        holder = case.get("classname", "").rpartition(".")[2]
        parts = [case.get("name", "")] if holder.endswith("_test") else [holder, case.get("name")]
        name = "::".join(filter(None, parts))
        outcome = _outcome(case)
        # A test that passes and fails in its tear-down is there twice.
        if name not in outcomes or outcome.kind == "failed":
            outcomes[name] = outcome
    return outcomes


def rows_of(junit_xml: str) -> list[Row]:
    """The rows of one module of the tests on GPUs."""
    return [_row(case) for case in ElementTree.fromstring(junit_xml).iter("testcase")]


def _row(case: ElementTree.Element) -> Row:
    said = {each.get("name"): each.get("value") or "" for each in case.iter("property")}
    name, outcome = case.get("name", ""), _outcome(case)
    test = name.partition("[")[0].removeprefix("test_").replace("_", " ")
    return Row(
        test, name, outcome.kind, outcome.reason, int(said.get("gpus", 0)), said.get("device", "")
    )


def _outcome(case: ElementTree.Element) -> Outcome:
    for child in case:
        if child.tag in _KINDS:
            lines = (child.get("message") or child.text or "").strip().splitlines()
            return Outcome(_KINDS[child.tag], lines[0] if lines else "")
    return Outcome("passed")


def in_parallel(
    function: Callable[[Item], Result], items: Iterable[Item], at_once: int = AT_ONCE
) -> list[Result]:
    """The function's results in the order of the items, a few at a time.

    Where one raises, or the process is told to end, those that have not begun do not begin.
    """
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, items))
