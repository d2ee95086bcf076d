"""`build.py test`: runs the C++ and Python tests on one or more releases, and prints a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from arguments import JAXLIB, is_version
from checks import testing
from checks.pytest_runs import in_parallel
from checks.testing import Module, Release, Result, Wheels, cpp_tests, judge, record
from machine.pythons import NEWER, Interpreter, found
from progress import Step, results, steps
from refusal import Refusal
from wheels import products, stock_wheel

ALL = "all"
OTHERS = "others"  # all except the default release
NEWEST = "newest"
_OLDER = ("0.6.2", "0.7.2", "0.8.3", "0.9.2")
_SETS = {
    ALL: (*_OLDER, JAXLIB, NEWEST),
    OTHERS: (*_OLDER, NEWEST),
}


def test_release(
    version: str,
    python: Interpreter,
    pytest_arguments: Sequence[str],
    finished: Path | None = None,
) -> int:
    """Runs the tests on one release, and returns the exit status.

    Args:
      finished: a finished wheel of ours to test, whose version replaces `version`. The C++ tests
        and the tests of the build are left out.

    Raises:
      Refusal: what the tests need could not be built.
    """
    with steps() as step:
        if finished:
            version = products.finished_version(step, finished, python)
        wheels = _wheels(step, Release(version, python), finished)
    if finished:
        print("C++ tests, and tests of the build: left out, since --wheel builds nothing")
    cpp = {} if finished else cpp_tests([python], pytest_arguments)
    command = "python3 build/build.py test"
    once = None if finished else wheels
    return _test([wheels], once, cpp, pytest_arguments, command, [])


def test_releases(
    names: Sequence[str], python: Interpreter, pytest_arguments: Sequence[str]
) -> int:
    """Runs the tests on each release, and returns the exit status.

    Args:
      names: versions, which are tested on `python`; `newest`, the newest jax on the newest Python
        of this machine; or a set, which leaves out `newest` if this machine has no Python for it:
        `all`, or `others` (all except the default release).

    Raises:
      Refusal: a wheel could not be downloaded or built.
    """
    with steps() as step:
        wanted, left_out = releases(step, names, python)
        wheels = _all_wheels(step, wanted)
    cpp = cpp_tests((each.release.python for each in wheels), pytest_arguments)
    command = f"python3 build/build.py test --releases {','.join(names)}"
    return _test(wheels, once(wheels, names), cpp, pytest_arguments, command, left_out)


def once(wheels: Sequence[Wheels], names: Sequence[str]) -> Wheels | None:
    """The release that also runs the modules that need no jaxlib: the default, or else the first.

    None for `others`, since `build.py test` runs those modules.
    """
    if list(names) == [OTHERS]:
        return None
    by_version = {each.release.version: each for each in wheels}
    return by_version.get(JAXLIB, wheels[0])


def releases(
    step: Step, names: Sequence[str], python: Interpreter
) -> tuple[list[Release], list[str]]:
    """The releases that the names stand for, and a line for each that has to be left out.

    Raises:
      Refusal: a name is not a version, or `newest` is named and there is no Python for it.
    """
    wanted = [each for name in names for each in _SETS.get(name, (name,))]
    for name in wanted:
        if name != NEWEST and not is_version(name):
            sets = ", ".join(_SETS)
            raise Refusal(
                f"--releases {name}: is not a version; give some such as {JAXLIB}, or {sets}"
            )
    found_releases, left_out = [], []
    for name in dict.fromkeys(wanted):
        try:
            found_releases.append(newest_release(step) if name == NEWEST else Release(name, python))
        except Refusal as refusal:
            if NEWEST in names:
                raise
            left_out.append(f"left out: {refusal}")
    return found_releases, left_out


def newest_release(step: Step, *, to_build: bool = True) -> Release:
    """The newest jaxlib for a Python on this machine, and that Python.

    Args:
      to_build: whether to leave out Pythons without headers.

    Raises:
      Refusal: there is none.
    """
    with step("Look for the newest Python and the newest jax for it"):
        for python in found(NEWER, to_build=to_build):
            version = stock_wheel.newest(python)
            if version:
                return Release(version, python)
    names = ", ".join(f"python{major}.{minor}" for major, minor in NEWER)
    raise Refusal(f"no Python for the newest jax; install one of {names} with its headers")


def _wheels(step: Step, release: Release, finished: Path | None = None) -> Wheels:
    stock = products.fetched(step, release.version, release.python.target)
    ours = finished or products.our_wheel(step, stock, release.python)
    return Wheels(release, stock, ours)


def _all_wheels(step: Step, wanted: Sequence[Release]) -> list[Wheels]:
    """The wheels of several releases. Packing one takes one core."""
    stock = [products.fetched(step, each.version, each.python.target) for each in wanted]
    # One after the other: Bazel has one output folder.
    extensions = {
        python: products.compiled(step, python)
        for python in dict.fromkeys(each.python for each in wanted)
    }

    def packed(release: Release, source: Path) -> Wheels:
        ours = products.packed_wheel(step, source, extensions[release.python], release.python)
        return Wheels(release, source, ours)

    return in_parallel(lambda pair: packed(*pair), zip(wanted, stock))


def _test(
    wheels: Sequence[Wheels],
    once: Wheels | None,
    cpp: dict[str, bool],
    arguments: Sequence[str],
    command: str,
    left_out: Sequence[str],
) -> int:
    with steps() as step:
        tested = testing.test(step, wheels, arguments, lambda line: print(line, flush=True), once)
    show(tested)
    if not arguments:
        record(tested, command)
    for line in left_out:
        print(line)
    return judge(cpp, tested)


def matrix(tested: Sequence[Result]) -> list[list[str]]:
    """The table, as rows of cells. The first row has the releases."""
    names = sorted({name for result in tested for name in result.modules})
    return [
        ["passed / failed / skipped", *(result.release.label for result in tested)],
        *([name, *(_cell(result.modules.get(name)) for result in tested)] for name in names),
        ["all", *(_cell(Module(result.tally, {})) for result in tested)],
        ["seconds", *(f"{result.seconds:.0f}" for result in tested)],
    ]


def _cell(module: Module | None) -> str:
    if module is None:
        return ""
    return "crashed" if module.tally is None else " / ".join(map(str, module.tally))


def show(tested: Sequence[Result]) -> None:
    """Prints the table."""
    head, *rows = matrix(tested)
    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    results().print(table, highlight=False)
