"""Figures of `build.py promise`, for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Sequence

from markdown import table
from pages import figures


def counts() -> str:
    """The table, below its source."""
    found = figures.kept("promise")
    if found is None:
        return figures.not_run("python3 build/build.py promise")
    return f"{figures.source(found)}\n\n{tables(found['exact']['tallies'])}"


def tables(tallies: Sequence[dict]) -> str:
    """A row for each release and kind of program."""
    head = ["jaxlib", "fed back", "programs", "more entries than stock after any call",
            "other values", "left with an entry too many, stock", "ours"]  # fmt: skip
    return table(head, [_row(tally) for tally in tallies])


def _row(tally: dict) -> list[str]:
    counts = [tally["programs"], len(tally["worse"]), len(tally["other_values"]),
              tally["left_by_stock"], tally["left"]]  # fmt: skip
    release = tally["jaxlib"].split("+")[0]
    return [release, tally["kind"], *(f"{count:,}" for count in counts)]
