"""Runs the C++ tests, and the Python tests on our wheel as pip installs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checks.pytest_runs import report_of, sum_of, tally_of
from machine.pythons import Interpreter, clean_environment
from paths import ROOT, TEST_REQUIREMENTS, TOOL_REQUIREMENTS
from progress import steps
from wheels import products
from wheels.extensions import test_extensions

REQUIREMENTS = (TEST_REQUIREMENTS, TOOL_REQUIREMENTS)
_LEFT_OUT = "left out, since --wheel builds nothing"


def test(
    version: str,
    python: Interpreter,
    out: Path,
    pytest_arguments: Sequence[str],
    finished: Path | None = None,
) -> int:
    """Runs all tests, one process a Python test module, and returns the exit status.

    Args:
      finished: a wheel of ours to test, of which the version is then; the C++ tests are left out.

    Raises:
      Refusal: what the tests need could not be built.
    """
    with steps() as step:
        if finished:
            version = products.finished_version(step, finished, python)
        source = products.fetched(step, version, python)
        wheel = finished or products.our_wheel(step, source, python, out)
        with_ours = products.jax_environment(step, "test", wheel, python, REQUIREMENTS)
        stock = products.jax_environment(step, "stock", source, python)
    cpp_passed = finished is not None or test_extensions(python)
    tallies, crashed = [], []
    for module in modules():
        print(f"{module}:", flush=True)
        report = module_report(module, with_ours, settings(stock, source, wheel), pytest_arguments)
        if report is None:
            crashed.append(module)
        else:
            tallies.append(tally_of(report))
    total = sum_of(tallies)
    print(f"C++ tests: {_LEFT_OUT if finished else 'passed' if cpp_passed else 'FAILED'}")
    for module in crashed:
        print(f"{module}: did not end as pytest does")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    went_well = cpp_passed and not crashed and not total.failed and total.passed
    return 0 if went_well else 1


def modules() -> list[str]:
    """The Python test modules, as paths in the repository."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*_test.py"))


def settings(stock: Path, source: Path, wheel: Path) -> dict[str, str]:
    """What the tests read from their environment: the stock Python, its wheel, and ours."""
    return {
        "JAXLIB_PJIT_STRICT": "1",
        "PJIT_STOCK_PYTHON": str(stock),
        "PJIT_STOCK_WHEEL": str(source.resolve()),
        "PJIT_WHEEL": str(wheel.resolve()),
    }


def module_report(
    module: str,
    python: Path,
    settings: dict[str, str],
    arguments: Sequence[str],
    log: Path | None = None,
) -> str | None:
    """Runs a module in a process of its own, since a process's device count is set once.

    Returns:
      pytest's report, or None where the process left no sound one.
    """
    return report_of(python, [*arguments, module], ROOT, clean_environment() | settings, log)
