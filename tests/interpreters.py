"""Runs programs in other processes, with this interpreter or the one with a stock jaxlib."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from time_limit import TIMEOUT_S

TESTS = Path(__file__).parent


def stock_python() -> str:
    """The interpreter with the stock jaxlib, or a skip."""
    path = os.environ.get("PJIT_STOCK_PYTHON")
    if not path:
        pytest.skip("PJIT_STOCK_PYTHON names no interpreter with the stock jaxlib")
    return path


def environment(python: str, settings: dict[str, str], devices: int) -> dict[str, str]:
    """The environment of a child process: CPU devices, and of the tests' settings only `settings`.

    A PYTHONPATH in `settings` comes before the one of this process.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    # If the fix is on PYTHONPATH, the stock interpreter must not get it.
    inherited = kept.pop("PYTHONPATH", "") if python == sys.executable else ""
    path = [str(TESTS), settings.get("PYTHONPATH", ""), inherited]
    return {
        **kept,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        **settings,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


def run(
    program: str | list[str],
    *,
    python: str = sys.executable,
    settings: dict[str, str] | None = None,
    devices: int = 2,
    cwd: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Runs the text of a program, or the interpreter's arguments, and waits for the end."""
    command = ["-c", program] if isinstance(program, str) else program
    return subprocess.run(
        [python, *command],
        env=environment(python, settings or {}, devices),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=cwd,
    )


def answer(program: str | list[str], **options: Any) -> Any:
    """The JSON that a program prints. If the program fails, the test fails."""
    done = run(program, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
