"""Adds the figures of a run to its results.json, and writes its Markdown and its plots.

Run as `report.py RESULTS_JSON`; the rest is written beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import plots
from markdown import document
from reckoning import as_json, reckon


def main(path: str) -> None:
    results = Path(path)
    run = reckon(json.loads(results.read_text()))
    results.write_text(as_json(run))
    (results.parent / "summary.md").write_text(document(run))
    plots.draw(run, results.parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
