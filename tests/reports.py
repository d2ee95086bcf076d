"""Runs of `python -m jaxlib.fastpath_report`."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import interpreters
from paths import ROOT

TITLE = "Slow dispatches and compilations"


def report(
    *arguments: str, settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return interpreters.run(
        ["-m", "jaxlib.fastpath_report", *arguments], settings=settings, devices=2, cwd=ROOT
    )


def rows(*arguments: str, settings: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON of a run that ends well."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        done = report("--json", str(file), *arguments, settings=settings)
        assert done.returncode == 0, done.stderr
        return json.loads(file.read_text())
