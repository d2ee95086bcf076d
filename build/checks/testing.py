"""Runs the Python test modules on releases of jaxlib with our wheel installed, a few at a time.

Each module runs in a process of its own, since the device count of a process is set once, before
jax is imported. pytest-xdist would reuse a worker for several modules, so it does not fit. The
modules of all releases form one queue, so that no core is idle while another has work.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from checks.pytest_runs import Tally, in_parallel, outcomes_of, report_of, sum_of, tally_of
from machine import environments
from machine.pythons import Interpreter, clean_environment
from pages import figures
from paths import LOGS, ROOT, TEST_REQUIREMENTS, TOOL_REQUIREMENTS, VENVS
from progress import Step
from refusal import Refusal
from wheels import products
from wheels.extensions import test_extensions

REQUIREMENTS = (TEST_REQUIREMENTS, TOOL_REQUIREMENTS)
# Test modules that do not depend on the jaxlib release. They run once.
RUN_ONCE = (
    "bazel_settings_test.py",
    "build_test.py",
    "conformance_test.py",
    "extension_checks_test.py",
    "gpu_node_test.py",
    "gpu_rehearsal_test.py",
    "nanobind_releases_test.py",
    "pages_test.py",
    "portable_test.py",
    "releases_test.py",
    "systems_test.py",
    "targets_test.py",
    "time_limit_test.py",
    "wheel_fuzz_test.py",
    "wheelhouse_test.py",
)
_NO_REPORT = "(the whole module)"
_NO_END = "pytest ended without a report"


class Release(NamedTuple):
    """A jaxlib release, and the Python to test it on."""

    version: str
    python: Interpreter

    @property
    def label(self) -> str:
        return f"{self.version} {self.python.abi}"


class Wheels(NamedTuple):
    """The stock wheel of a release, and our wheel made from it."""

    release: Release
    stock: Path
    ours: Path


class Module(NamedTuple):
    """The result of one test module on one release."""

    tally: Tally | None  # None if pytest ended without a report
    failures: dict[str, str]  # the first line of the reason, by the test's name
    seconds: float = 0


class Result(NamedTuple):
    """The results of one release. If it could not be tested, there is no module, and an error."""

    release: Release
    modules: dict[str, Module]
    error: str = ""

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.modules.values())

    @property
    def tally(self) -> Tally:
        return sum_of(each.tally for each in self.modules.values() if each.tally)


class _Environments:
    """An environment with our wheel and one with the stock wheel, made for the first module.

    If there are several releases, both are deleted after the last module, unless they existed
    before: the environments of all releases would take gigabytes.
    """

    def __init__(self, step: Step, wheels: Wheels, uses: int, *, keeps: bool) -> None:
        self._step, self._wheels, self._uses, self._keeps = step, wheels, uses, keeps
        self._lock = threading.Lock()  # guards the fields below
        self._before = set(VENVS.glob("*"))
        self._made: list[Path] = []
        self._error = ""

    def pythons(self) -> tuple[Path, Path]:
        """The Pythons of our environment and of the stock one.

        Raises:
          Refusal: an environment could not be made, now or at the first attempt.
        """
        with self._lock:
            if self._error:
                raise Refusal(self._error)
            try:
                while len(self._made) < 2:
                    self._made.append(self._make(len(self._made)))
            except Refusal as refusal:
                self._error = str(refusal)
                raise
            return self._made[0], self._made[1]

    def _make(self, index: int) -> Path:
        release, stock, ours = self._wheels
        kind, wheel, more = (("test", ours, REQUIREMENTS), ("stock", stock, ()))[index]
        return products.jax_environment(self._step, kind, wheel, release.python, more)

    def used(self) -> None:
        """Tells that one module is done."""
        with self._lock:
            self._uses -= 1
            if self._uses or self._keeps:
                return
            for folder in (python.parent.parent for python in self._made):
                if folder not in self._before:
                    environments.delete(folder)


def test(
    step: Step,
    tested: Sequence[Wheels],
    arguments: Sequence[str],
    say: Callable[[str], None],
    once: Wheels | None,
) -> list[Result]:
    """Runs the test modules on each release.

    Args:
      arguments: pytest's. If some name test modules, or tests in them, only these run.
      say: called with a line for each module that has run.
      once: the release that the modules of RUN_ONCE run for, if any.
    """
    chosen, options = selected(arguments)
    jobs = [
        (wheels, module) for wheels in tested for module in chosen if runs(module, wheels is once)
    ]
    uses = Counter(wheels.release for wheels, _ in jobs)
    keeps = len(tested) == 1
    pythons = {
        each.release: _Environments(step, each, uses[each.release], keeps=keeps) for each in tested
    }
    errors: dict[Release, str] = {}
    numbers = iter(range(1, len(jobs) + 1))

    def run(job: tuple[Wheels, str]) -> Module | None:
        wheels, module = job
        release = wheels.release
        try:
            ours, stock = pythons[release].pythons()
            done = _run(module, wheels, ours, stock, options, is_only=len(jobs) == 1)
        except Refusal as refusal:
            errors[release] = str(refusal)
            return None
        finally:
            pythons[release].used()
        say(f"[{next(numbers)}/{len(jobs)}] {release.label} {module}: {_told(done)}")
        return done

    found: dict[Release, dict[str, Module]] = {each.release: {} for each in tested}
    for (wheels, module), done in zip(jobs, in_parallel(run, jobs)):
        if done is not None:
            found[wheels.release][module.partition("::")[0].rpartition("/")[2]] = done
    return [Result(release, modules, errors.get(release, "")) for release, modules in found.items()]


def selected(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The test modules or tests that the arguments name, or all; and the other arguments.

    Raises:
      Refusal: an argument names a module that does not exist.
    """
    gone = [each for each in arguments if _names_module(each) and not _module_of(each).is_file()]
    if gone:
        raise Refusal(f"{gone[0]}: no such test module; give one of {ROOT / 'tests'}")
    named = list(filter(_names_module, arguments))
    return named or modules(), [each for each in arguments if each not in named]


def _names_module(argument: str) -> bool:
    return not argument.startswith("-") and _module_of(argument).suffix == ".py"


def _module_of(argument: str) -> Path:
    return ROOT / argument.partition("::")[0]


def modules() -> list[str]:
    """The Python test modules, as paths in the repository."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*_test.py"))


def runs(module: str, is_once: bool) -> bool:
    """Whether a module runs for a release, given whether the modules of RUN_ONCE run for it."""
    return is_once or Path(module.partition("::")[0]).name not in RUN_ONCE


def cpp_tests(pythons: Iterable[Interpreter], arguments: Sequence[str]) -> dict[str, bool]:
    """Runs the C++ tests for each Python, unless `arguments` name test modules.

    Returns:
      Whether they passed, by ABI.
    """
    if any(map(_names_module, arguments)):
        return {}
    return {python.abi: test_extensions(python) for python in dict.fromkeys(pythons)}


def _run(
    module: str,
    wheels: Wheels,
    ours: Path,
    stock: Path,
    options: Sequence[str],
    *,
    is_only: bool,
) -> Module:
    # The output of a single module goes to the terminal. That of several would be mixed up.
    log = None if is_only else _log(wheels.release, module)
    environment = clean_environment() | settings(stock, wheels.stock, wheels.ours)
    start = time.monotonic()
    report = report_of(ours, [*options, module], ROOT, environment, log)
    seconds = round(time.monotonic() - start, 1)
    if report is None:
        return Module(None, {_NO_REPORT: _NO_END}, seconds)
    outcomes = outcomes_of(report)
    failures = {name: each.reason for name, each in outcomes.items() if each.kind == "failed"}
    return Module(tally_of(report), failures, seconds)


def settings(stock: Path, stock_wheel: Path, wheel: Path) -> dict[str, str]:
    """The environment variables that the tests read: the stock Python, its wheel, and ours."""
    return {
        "JAXLIB_PJIT_STRICT": "1",
        "PJIT_STOCK_PYTHON": str(stock),
        "PJIT_STOCK_WHEEL": str(stock_wheel.resolve()),
        "PJIT_WHEEL": str(wheel.resolve()),
    }


def logs(release: Release) -> Path:
    """The folder with pytest's output for a release."""
    return LOGS / f"test-{release.version}-{release.python.abi}"


def _log(release: Release, module: str) -> Path:
    return logs(release) / f"{Path(module.partition('::')[0]).stem}.log"


def _told(done: Module) -> str:
    if done.tally is None:
        return f"{_NO_END}, {done.seconds:.0f} s"
    return f"{counted(done.tally)}, {done.seconds:.0f} s"


def counted(tally: Tally) -> str:
    """A tally in words."""
    return f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped"


def record(results: Sequence[Result], command: str) -> None:
    """Records the results of each release as figures."""
    for result in results:
        tallies = {
            name: each.tally and each.tally._asdict() for name, each in result.modules.items()
        }
        figures.record(
            f"test-{result.release.version}-{result.release.python.abi}",
            command,
            exact={"release": result.release.label, "modules": sorted(tallies)},
            measured={"tallies": tallies, "error": result.error},
        )


def judge(cpp: dict[str, bool], results: Sequence[Result]) -> int:
    """Prints the failures and how many tests passed, and returns the exit status."""
    wrong = []
    for abi, passed in cpp.items():
        print(f"C++ tests, {abi}: {'passed' if passed else 'FAILED'}")
    for result in results:
        label = result.release.label
        failures = [
            f"{label}: {name}::{test}: {reason}"
            for name, each in result.modules.items()
            for test, reason in each.failures.items()
        ]
        if result.error:
            wrong.append(f"{label}: {result.error}")
        elif not result.tally.passed:
            wrong.append(f"{label}: no test passed")
        if failures:
            wrong += [*failures, f"{label}: what pytest said is in {logs(result.release)}"]
    for line in wrong:
        print(line)
    print(counted(sum_of(result.tally for result in results)))
    return 1 if wrong or not all(cpp.values()) else 0
