"""What a run's samples come to, and its results.json."""

from __future__ import annotations

import json

from entry_checks import wrong
from figures import figures


def reckon(run: dict) -> dict:
    """A run with its figures and with what is wrong in it."""
    samples = run["samples"]
    return run | {"figures": figures(samples), "wrong": wrong(samples, run["place"]["found"])}


def as_json(run: dict) -> str:
    """A run with a line for each sample and figure: short, and its diffs too."""
    head = {name: value for name, value in run.items() if name not in ("samples", "figures")}
    lists = (
        f' "{name}": [\n  ' + ",\n  ".join(map(json.dumps, run[name])) + "\n ]"
        for name in ("figures", "samples")
    )
    return json.dumps(head, indent=1).rstrip("}\n") + ",\n" + ",\n".join(lists) + "\n}\n"
