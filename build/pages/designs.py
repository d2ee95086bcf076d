"""Figures of `build.py designs`, for docs/upstream_pr.md."""

from __future__ import annotations

from markdown import table
from pages import figures


def tables() -> str:
    """A table for each release that was compared."""
    found = figures.all_kept("designs-")
    return "\n\n".join(map(_table, found)) or figures.not_run("python3 build/build.py designs")


def _table(of: figures.Figures) -> str:
    facts = of["exact"]
    rows = [[name, *counts] for name, counts in facts["wrong"].items()]
    return "\n\n".join([figures.source(of), table([facts["release"], *facts["groups"]], rows)])
