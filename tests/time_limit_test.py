"""TIMEOUT_S sets the tests' time limit. A value that is no number is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import time_limit; print(time_limit.TIMEOUT_S)"


def limit(setting: str | None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "TIMEOUT_S"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=kept if setting is None else kept | {"TIMEOUT_S": setting},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("setting", "seconds"), [(None, "300"), ("4500", "4500")])
def test_the_setting_is_the_limit(setting: str | None, seconds: str) -> None:
    assert limit(setting).stdout.strip() == seconds


@pytest.mark.parametrize("setting", ["", "0", "-1", "ten", "1e3"])
def test_a_setting_that_is_not_a_number_of_seconds_is_refused_in_one_line(setting: str) -> None:
    done = limit(setting)

    assert done.returncode == 1
    said = f"TIMEOUT_S={setting}: is not a number of seconds; give one such as 300\n"
    assert done.stderr == said
