"""Keeps the results of `build.py systems` in a JSON file, and writes docs/systems.md from it.

A row stays until the same check runs on the same system again. Standard library only.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import NamedTuple

from paths import ROOT
from refusal import Refusal, refusing_os_errors
from run import hardware

_PAGE = ROOT / "docs" / "systems.md"
_ROWS = ROOT / "docs" / "systems.json"
_HEAD = """# Where the wheel was tried

`build.py systems` writes this page. Each row is one command on one system, with its day and commit.
It is run by hand; `.ci/run` runs on Debian 12, with CPython 3.11 and 3.13. "Built there" means that
the system's own Bazel and compiler made the wheel, "wheelhouse" that it is the portable wheel, made
on another system. "Built only" means that nothing has run it.

"""
_COLUMNS = ("system", "machine", "CPython", "jaxlib", "wheel", "check", "result", "day", "commit")


class Row(NamedTuple):
    """One check of one system."""

    system: str
    machine: str
    python: str
    jaxlib: str
    wheel: str  # where it was built
    check: str
    result: str
    day: str = ""
    commit: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """A row replaces an earlier one with the same key."""
        return (*self[:4], self.check)

    @property
    def went_well(self) -> bool:
        """Whether the result has no failure."""
        return not re.search(r"FAILED|[1-9]\d* (?:failed|error)", self.result)


def record(row: Row) -> None:
    """Adds a row with today's date, and writes the page.

    Raises:
      Refusal: the files cannot be read or written.
    """
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    row = row._replace(day=today, commit=_short(hardware.commit()))
    rows = {each.key: each for each in read()} | {row.key: row}
    in_order = sorted(rows.values(), key=lambda each: (*map(_natural, each.key),))
    with refusing_os_errors(f"write {_PAGE}"):
        _ROWS.write_text(json.dumps([each._asdict() for each in in_order], indent=1) + "\n")
        _PAGE.write_text(page(in_order))


def page(rows: list[Row]) -> str:
    """The page's text."""
    lines = [_COLUMNS, ["---"] * len(_COLUMNS), *rows]
    return _HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def read() -> list[Row]:
    """The rows of the JSON file.

    Raises:
      Refusal: the file has something else in it.
    """
    if not _ROWS.exists():
        return []
    try:
        with refusing_os_errors(f"read {_ROWS}"):
            return [Row(**each) for each in json.loads(_ROWS.read_text())]
    except (ValueError, TypeError) as error:
        raise Refusal(f"{_ROWS}: is not what build.py wrote; restore it with git") from error


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts 3.9 before 3.10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", text)]


def _short(commit: str) -> str:
    """The first seven digits of a commit, and the plus of one with local changes."""
    return commit[:7] + "+" * commit.endswith("+")
