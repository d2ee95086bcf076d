"""Runs JAX's own test files on a stock jaxlib and on ours, and shows which tests differ.

Or runs them on a stock jaxlib, and on the same with the pull request's comparison simulated.

The files come from a local checkout of JAX. Nothing is written to it.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table

from checks.pytest_runs import Outcome, in_parallel, outcomes_of, report_of
from machine.pythons import Interpreter, clean_environment
from pages import figures
from paths import ALLOWED_DIFFERENCES, CONFORMANCE_REQUIREMENTS, LOGS, ROOT
from progress import Step, results, steps
from refusal import Refusal
from wheels import products

NAMES = (
    *("pjit", "api", "random", "pickle", "jax_jit", "aot", "array", "memories", "layout", "core"),
    *("key_reuse", "multi_device", "pmap", "shard_map", "mutable_array", "custom_api"),
    *("garbage_collection_guard", "clear_backends", "debug_nans", "x64_context"),
    *("python_callback", "jaxpr_effects"),
)

_WHOLE = "(the whole file)"
_CRASHED = Outcome("crashed", "pytest ended without a report")
_ABSENT = Outcome("absent")
_PACKAGES = """
import importlib.metadata, json
print(json.dumps({d.name: d.version for d in importlib.metadata.distributions()}))
"""

Outcomes = dict[str, Outcome]  # by the test's name


class Side(NamedTuple):
    """One of the jaxlibs that every file runs on."""

    name: str
    python: Path
    settings: dict[str, str]


class Difference(NamedTuple):
    """A test whose outcomes are not the same on all sides."""

    test: str
    outcomes: tuple[Outcome, ...]


def conformance(
    checkout: Path,
    version: str,
    names: Sequence[str],
    python: Interpreter,
    *,
    simulate_comparison: bool = False,
) -> int:
    """Runs the files, and returns the exit status: 1 if a test differs that may not.

    With a simulated comparison no test may differ, since our wheel is not part of that run.

    Raises:
      Refusal: the checkout is not one of this release, or something could not be built.
    """
    files = test_files(checkout, names)
    check_version(checkout, version)
    allowed = allowed_differences(ALLOWED_DIFFERENCES.read_text())
    with steps() as step:
        if simulate_comparison:
            allowed, sides = set(), _simulated_sides(step, version, python)
        else:
            sides = _sides(step, version, python)
        runs = [(file, side) for file in files for side in sides]
        logs = LOGS / f"conformance-{version}-{python.abi}"
        outcomes = in_parallel(lambda run: _outcomes(step, checkout, *run, logs), runs)
    by_file = {
        file.name: outcomes[len(sides) * index :][: len(sides)] for index, file in enumerate(files)
    }
    show([side.name for side in sides], by_file)
    status = judge([side.name for side in sides], by_file, allowed)
    if tuple(names) == NAMES:
        _record(version, [side.name for side in sides], by_file, simulate_comparison)
    print(f"What pytest said: {logs}")
    return status


def _record(
    version: str, sides: Sequence[str], by_file: dict[str, list[Outcomes]], is_simulated: bool
) -> None:
    """Records the counts of each file, and the tests that differ, as figures."""
    flag = " --simulate-comparison" if is_simulated else ""
    differ = [each.test for file, row in by_file.items() for each in differences(file, row)]
    figures.record(
        f"conformance-{'simulated-' if is_simulated else ''}{version}",
        f"python3 build/build.py conformance{flag} --jaxlib {version} --jax-source DIR",
        exact={"sides": list(sides), "differ": differ},
        measured={
            "files": {
                file.removesuffix("_test.py"): [_counts(each) for each in row]
                for file, row in by_file.items()
            }
        },
    )


def test_files(checkout: Path, names: Sequence[str]) -> list[Path]:
    """The files of the tests with these names.

    Raises:
      Refusal: the checkout lacks one of them.
    """
    folder = checkout.resolve() / "tests"
    if not folder.is_dir():
        raise Refusal(f"{checkout}: has no folder tests; give --jax-source a checkout of JAX")
    files = [folder / f"{name}_test.py" for name in dict.fromkeys(names)]
    for file in files:
        if not file.is_file():
            raise Refusal(f"{file}: not found; give --tests names of test files there")
    return files


def check_version(checkout: Path, version: str) -> None:
    """Checks that the checkout is of the release to test.

    Raises:
      Refusal: they differ.
    """
    file = checkout / "jax" / "version.py"
    found = file.is_file() and re.search(r'^_version = "(.*)"$', file.read_text(), re.MULTILINE)
    if found and found[1] != version:
        raise Refusal(f"{checkout}: is jax {found[1]}; give --jaxlib {found[1]}, or check out")


def allowed_differences(document: str) -> set[str]:
    """The tests in the document's table, as FILE::CLASS::TEST."""
    return set(re.findall(r"^\| `([^`|]+_test\.py::[^`|]+)` \|", document, re.MULTILINE))


def _sides(step: Step, version: str, python: Interpreter) -> list[Side]:
    source = products.fetched(step, version, python.target)
    wheel = products.our_wheel(step, source, python)
    more = [CONFORMANCE_REQUIREMENTS]
    stock = products.jax_environment(step, "conformance-stock", source, python, more)
    ours = products.jax_environment(step, "conformance-ours", wheel, python, more)
    if (here := _packages(stock)) != (there := _packages(ours)):
        differ = ", ".join(sorted(name for name, _ in here.items() ^ there.items()))
        raise Refusal(f"the packages in {stock} and {ours} differ: {differ}; delete both")
    return [
        Side("stock", stock, {}),
        Side("ours", ours, {}),
        Side("ours, strict", ours, {"JAXLIB_PJIT_STRICT": "1"}),
    ]


def _simulated_sides(step: Step, version: str, python: Interpreter) -> list[Side]:
    source = products.fetched(step, version, python.target)
    more = [CONFORMANCE_REQUIREMENTS]
    stock = products.jax_environment(step, "conformance-stock", source, python, more)
    plugin = {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_ADDOPTS": "-p simulated_comparison"}
    return [Side("stock", stock, {}), Side("simulated", stock, plugin)]


def _packages(python: Path) -> dict[str, str]:
    """The packages that are installed there, with their versions, except jaxlib."""
    command = [str(python), "-c", _PACKAGES]
    done = subprocess.run(command, env=clean_environment(), stdout=subprocess.PIPE, check=True)
    return {name: each for name, each in json.loads(done.stdout).items() if name != "jaxlib"}


def _outcomes(step: Step, checkout: Path, file: Path, side: Side, logs: Path) -> Outcomes:
    # With importlib's mode and another working directory, the checkout's folder jax is never on the
    # path, where it would hide the installed jax.
    arguments = [f"--rootdir={checkout.resolve()}", "--import-mode=importlib", str(file)]
    settings = {"JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": "1", **side.settings}
    log = logs / f"{file.stem}-{side.name.replace(', ', '-')}.log"
    with step(f"{file.name}, {side.name}"), tempfile.TemporaryDirectory() as elsewhere:
        report = report_of(
            side.python, arguments, Path(elsewhere), clean_environment() | settings, log
        )
    return {_WHOLE: _CRASHED} if report is None else outcomes_of(report)


def show(sides: Sequence[str], by_file: dict[str, list[Outcomes]]) -> None:
    """Prints how many tests passed, failed and were skipped in each file on each side."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("passed / failed / skipped", *sides, "differ"):
        table.add_column(column)
    for file, outcomes in by_file.items():
        counts = [_counts(each) for each in outcomes]
        table.add_row(file, *map(_cell, counts), str(len(differences(file, outcomes))))
    results().print(table, highlight=False)


def _counts(outcomes: Outcomes) -> list[int]:
    kinds = [outcome.kind for outcome in outcomes.values()]
    return [kinds.count(kind) for kind in ("passed", "failed", "skipped")]


def _cell(counts: Sequence[int]) -> str:
    return " / ".join(map(str, counts)) if any(counts) else "[red]no report[/red]"


def differences(file: str, outcomes: Sequence[Outcomes]) -> list[Difference]:
    """The tests of a file whose outcomes are not the same on all sides."""
    names = dict.fromkeys(name for each in outcomes for name in each)
    rows = [(name, tuple(each.get(name, _ABSENT) for each in outcomes)) for name in names]
    return [
        Difference(f"{file}::{name}", row)
        for name, row in rows
        if len({outcome.kind for outcome in row}) > 1
    ]


def judge(sides: Sequence[str], by_file: dict[str, list[Outcomes]], allowed: set[str]) -> int:
    """Prints every difference, and returns the exit status."""
    found = [each for file, outcomes in by_file.items() for each in differences(file, outcomes)]
    forbidden = [each for each in found if each.test not in allowed]
    for each in found:
        print(f"{each.test}: differs{'' if each in forbidden else ', which is allowed'}")
        for side, outcome in zip(sides, each.outcomes):
            print(f"  {side}: {outcome.kind}{outcome.reason and ': '}{outcome.reason}")
    crashed = [file for file, outcomes in by_file.items() if any(_WHOLE in o for o in outcomes)]
    for file in crashed:
        print(f"{file}: pytest ended without a report")
    run = sum(len(outcomes[0]) for outcomes in by_file.values())
    print(f"{run} tests, {len(found)} differ, {len(forbidden)} of them not allowed")
    return 1 if forbidden or crashed else 0
