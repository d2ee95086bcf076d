"""Runs a long command, shows its output as it comes, and returns it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from refusal import Refusal, refusing_os_errors


def told(
    command: Sequence[str],
    *,
    fails: bool = False,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs a command. Returns its standard output and standard error, in one text.

    Args:
      fails: whether the command may fail.

    Raises:
      Refusal: it failed, and may not, or there is no such program.
    """
    lines = []
    with (
        refusing_os_errors(f"run {command[0]}"),
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=cwd,
            env=environment,
        ) as process,
    ):
        for line in process.stdout:
            lines.append(line)
            sys.stderr.write(line)
    if process.returncode != 0 and not fails:
        last = ([line for line in lines if line.strip()] or ["it said nothing"])[-1]
        raise Refusal(f"{' '.join(command[-4:])} failed: {last}")
    return "".join(lines)
