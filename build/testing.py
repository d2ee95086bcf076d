"""Runs the C++ tests, and the Python tests on our wheel as pip installs it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import products
from extensions import test_extensions
from paths import ROOT, TEST_REQUIREMENTS, TOOL_REQUIREMENTS
from progress import steps
from pythons import Interpreter, clean_environment

_NOTHING_COLLECTED = 5  # pytest's exit status


class Tally(NamedTuple):
    """What became of the tests. An error in a test's set-up is a failure."""

    passed: int
    failed: int
    skipped: int


def test(version: str, python: Interpreter, out: Path, pytest_arguments: Sequence[str]) -> int:
    """Runs all tests, one process a Python test module, and returns the exit status.

    Raises:
      Refusal: what the tests need could not be built.
    """
    with steps() as step:
        source = products.fetched(step, version, python)
        wheel = products.our_wheel(step, source, python, out)
        requirements = [TEST_REQUIREMENTS, TOOL_REQUIREMENTS]
        with_ours = products.jax_environment(step, "test", wheel, python, requirements)
        stock = products.jax_environment(step, "stock", source, python)
    cpp_passed = test_extensions(python)
    settings = {
        "JAXLIB_PJIT_STRICT": "1",
        "PJIT_STOCK_PYTHON": str(stock),
        "PJIT_STOCK_WHEEL": str(source.resolve()),
        "PJIT_WHEEL": str(wheel.resolve()),
    }
    tally, crashed = _python_tests(with_ours, settings, pytest_arguments)
    print(f"C++ tests: {'passed' if cpp_passed else 'FAILED'}")
    for module in crashed:
        print(f"{module}: did not end as pytest does")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    went_well = cpp_passed and not crashed and not tally.failed and tally.passed
    return 0 if went_well else 1


def _python_tests(
    python: Path, settings: dict[str, str], arguments: Sequence[str]
) -> tuple[Tally, list[str]]:
    """Runs each module in a process of its own, since a process's device count is set once.

    Returns:
      The sum, and the modules whose process left no sound report.
    """
    total, crashed = Tally(0, 0, 0), []
    for module in sorted((ROOT / "tests").glob("*_test.py")):
        tally = _module_tests(python, module, settings, arguments)
        if tally is None:
            crashed.append(module.name)
        else:
            total = Tally(*map(sum, zip(total, tally, strict=True)))
    return total, crashed


def _module_tests(
    python: Path, module: Path, settings: dict[str, str], arguments: Sequence[str]
) -> Tally | None:
    name = str(module.relative_to(ROOT))
    print(f"{name}:", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["--quiet", "--no-header", "-p", "no:cacheprovider", f"--junit-xml={report}"]
        status = subprocess.run(
            [str(python), "-m", "pytest", *options, *arguments, name],
            cwd=ROOT,
            env=clean_environment() | settings,
            check=False,
        ).returncode
        if status not in (0, 1, _NOTHING_COLLECTED) or not report.is_file():
            return None
        return tally_of(report.read_text())


def tally_of(junit_xml: str) -> Tally:
    """What a report of pytest's in JUnit's form comes to."""
    counts = [
        {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        for suite in ElementTree.fromstring(junit_xml).iter("testsuite")
    ]
    failed = sum(count["failures"] + count["errors"] for count in counts)
    skipped = sum(count["skipped"] for count in counts)
    return Tally(sum(count["tests"] for count in counts) - failed - skipped, failed, skipped)
