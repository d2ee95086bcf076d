"""Computes the figures of a run, and formats its results.json."""

from __future__ import annotations

import json

from entry_checks import wrong
from figures import figures


def reckon(run: dict) -> dict:
    """Adds the figures, and what is wrong, to a run."""
    samples = run["samples"]
    return run | {"figures": figures(samples), "wrong": wrong(samples, run["place"]["found"])}


def as_json(run: dict) -> str:
    """A run as JSON with a line for each sample and figure, so that diffs are short."""
    head = {name: value for name, value in run.items() if name not in ("samples", "figures")}
    lists = (
        f' "{name}": [\n  ' + ",\n  ".join(map(json.dumps, run[name])) + "\n ]"
        for name in ("figures", "samples")
    )
    return json.dumps(head, indent=1).rstrip("}\n") + ",\n" + ",\n".join(lists) + "\n}\n"
