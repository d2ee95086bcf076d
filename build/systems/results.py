"""Sums up a command's output for a row."""

from __future__ import annotations

import re

_GOAL = "Ours reaches the goal in every row"
_TALLY = re.compile(r"^(\d+ passed, \d+ failed, \d+ skipped)$", re.MULTILINE)
_CPP = re.compile(r"^C\+\+ tests, \w+: (passed|FAILED)$", re.MULTILINE)
_PYTEST = re.compile(r"^=* ?(\d+ (?:passed|failed|error).*) in [\d.]+s.*$", re.MULTILINE)


def of_demo(said: str) -> str:
    """The result of `build.py demo`."""
    return "every row reaches its goal" if _GOAL in said else _failed(said)


def of_tests(said: str) -> str:
    """The result of `build.py test`."""
    tallies, cpp = _TALLY.findall(said), _CPP.findall(said)
    if not tallies:
        return _failed(said)
    return "; ".join([tallies[-1], *(f"C++ tests {each}" for each in cpp)])


def of_pytest(said: str) -> str:
    """The result of pytest."""
    found = _PYTEST.findall(said)
    return found[-1] if found else _failed(said)


def _failed(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"FAILED: {lines[-1] if lines else 'it said nothing'}"
