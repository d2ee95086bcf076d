"""Sets the figures of two runs of the benchmark side by side."""

from __future__ import annotations

import json
from pathlib import Path

from rich import box
from rich.table import Table

from progress import results
from refusal import Refusal

SCHEMA = 1
_KEY = ("measure", "figure", "case", "n", "variant")


def compare(first: Path, second: Path) -> int:
    """Prints the figures that both files have, and returns the exit status.

    Raises:
      Refusal: one of them is not a result of this benchmark, or they have nothing in common.
    """
    a, b = read(first), read(second)
    rows = pairs(a, b)
    if not rows:
        raise Refusal(f"{first} and {second}: have no figure in common")
    table = Table(*_KEY, "unit", "A", "B", "B / A", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console = results()
    for name, run in (("A", a), ("B", b)):
        console.print(f"{name}: {_head(run)}", highlight=False, markup=False)
    console.print(table, highlight=False, markup=False)
    return 0


def read(path: Path) -> dict:
    """A results.json.

    Raises:
      Refusal: this benchmark did not write it.
    """
    try:
        run = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Refusal(f"{path}: cannot be read as JSON; give a results.json of bench") from error
    if not _is_run(run):
        raise Refusal(f"{path}: is not a results.json of this version of bench; run bench again")
    return run


def _is_run(run: object) -> bool:
    """Whether a run has all that `compare` shows."""
    try:
        _head(run)
        for figure in run["figures"]:
            hash(_key(figure))
            _cells(figure, figure)
        return run["schema"] == SCHEMA
    except (KeyError, TypeError, ValueError):
        return False


def _head(run: dict) -> str:
    quick = ", with --quick" if run["quick"] else ""
    return f"{run['commit']}{quick}, {run['machine']['cpu']}, load {run['machine']['load_before']}"


def pairs(a: dict, b: dict) -> list[list[str]]:
    """A row of cells for each figure that both have."""
    others = {_key(figure): figure for figure in b["figures"]}
    return [
        _cells(figure, others[_key(figure)]) for figure in a["figures"] if _key(figure) in others
    ]


def _key(figure: dict) -> tuple:
    return tuple(figure[part] for part in _KEY)


def _cells(a: dict, b: dict) -> list[str]:
    # A ratio means nothing for a figure that may be negative, such as a difference of times.
    ratio = f"{b['value'] / a['value']:.3f}" if min(a["low"], b["low"]) > 0 else ""
    return [*(str(part) for part in _key(a)), a["unit"], _spread(a), _spread(b), ratio]


def _spread(figure: dict) -> str:
    return f"{figure['value']:.4g} ({figure['low']:.4g} to {figure['high']:.4g})"
