"""Runs pytest in a process of its own, and reads its report."""

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

AT_ONCE = 2  # a test module needs a core, and a gigabyte or two of memory
PROCESSES_IN_TURN = 12  # that a module starts; a module that takes longer than these hangs

_NOTHING_COLLECTED = 5  # pytest's exit status
_KINDS = {"failure": "failed", "error": "failed", "skipped": "skipped"}

Item = TypeVar("Item")
Result = TypeVar("Result")


class Tally(NamedTuple):
    """The numbers of tests. An error in a fixture is a failure."""

    passed: int
    failed: int
    skipped: int


class Outcome(NamedTuple):
    """The result of one test: passed, failed or skipped, and the first line of the reason."""

    kind: str
    reason: str = ""


class Row(NamedTuple):
    """The result of one test on GPUs, and the devices that it reports."""

    test: str  # without its parameters
    name: str
    kind: str
    reason: str
    gpus: int  # 0 if it did not run
    device: str


def report_of(
    python: Path,
    arguments: Sequence[str],
    cwd: Path,
    environment: dict[str, str],
    log: Path | None = None,
) -> str | None:
    """Runs one pytest process. Its output goes to `log`, if there is one.

    Returns:
      The report in JUnit's form, or None if pytest crashed, took too long or refused to run.
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
    """How many seconds a test module may take. TIMEOUT_S raises it, as it does for one process.

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
        # The class name follows the module's dotted name. For a function there is only the latter.
        holder = case.get("classname", "").rpartition(".")[2]
        parts = [case.get("name", "")] if holder.endswith("_test") else [holder, case.get("name")]
        name = "::".join(filter(None, parts))
        outcome = _outcome(case)
        # A test that passes, and whose teardown fails, is there twice.
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
    """Calls the function for a few items at a time. Returns the results in the items' order.

    After an exception, no further call begins.
    """
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, items))
