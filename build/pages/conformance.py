"""Figures of JAX's own tests, for docs/reliability.md and docs/upstream_pr.md."""

from __future__ import annotations

from markdown import table
from pages import figures


def tables() -> str:
    """A table for each full run of `build.py conformance`."""
    found = figures.all_kept("conformance-")
    return "\n\n".join(map(_table, found)) or figures.not_run(
        "python3 build/build.py conformance --jax-source DIR"
    )


def simulated() -> str:
    """The results with the comparison simulated, in a line."""
    found = figures.kept("conformance-simulated-0.10.2")
    if found is None:
        return figures.not_run("python3 build/build.py conformance --simulate-comparison")
    files, differ = found["measured"]["files"], found["exact"]["differ"]
    (passed, failed, skipped), _ = _total(files)
    said = f"of the tests in {len(files)} files, {passed:,} pass on stock, {failed} fail"
    which = ", ".join(f"`{test}`" for test in differ) or "none"
    return f"{said} and {skipped} are skipped; these differ: {which}"


def _total(files: dict[str, list[list[int]]]) -> list[list[int]]:
    """The counts of all files, for each side."""
    return [[sum(counts) for counts in zip(*each)] for each in zip(*files.values())]


def _table(of: figures.Figures) -> str:
    sides, differ = of["exact"]["sides"], of["exact"]["differ"]
    files = of["measured"]["files"]
    total = _total(files)
    rows = [[name, *map(_cell, row), _differ(name, differ)] for name, row in files.items()]
    rows.append(["all", *map(_cell, total), str(len(differ))])
    tests = sum(total[0])
    which = "; ".join(f"`{test}`" for test in differ) or "none"
    said = f"Of {tests:,} tests these differ: {which}."
    head = ["passed / failed / skipped", *sides, "differ"]
    return "\n\n".join([figures.source(of), table(head, rows), said])


def _cell(counts: list[int]) -> str:
    return " / ".join(map(str, counts))


def _differ(name: str, tests: list[str]) -> str:
    return str(sum(test.startswith(f"{name}_test.py::") for test in tests))
