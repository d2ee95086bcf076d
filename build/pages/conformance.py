"""docs/reliability.md: what JAX's own tests give on stock and on ours."""

from __future__ import annotations

from markdown import table
from pages import figures


def tables() -> str:
    """A table for each release and each way that `build.py conformance` ran in full."""
    found = figures.all_kept("conformance-")
    return "\n\n".join(map(_table, found)) or figures.not_run(
        "python3 build/build.py conformance --jax-source DIR"
    )


def _table(of: figures.Figures) -> str:
    sides, differ = of["exact"]["sides"], of["exact"]["differ"]
    files = of["measured"]["files"]
    total = [[sum(counts) for counts in zip(*each)] for each in zip(*files.values())]
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
