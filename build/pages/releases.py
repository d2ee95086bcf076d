"""Figures of the Python tests on each release, for the README and docs/reliability.md."""

from __future__ import annotations

from packaging.version import Version

from markdown import table
from pages import figures

_COMMAND = "python3 build/build.py test --releases all"


def matrix() -> str:
    """A table with a row for each test module and a column for each release."""
    found = sorted(figures.all_kept("test-"), key=_version)
    if not found:
        return figures.not_run(_COMMAND)
    tallies = [each["measured"]["tallies"] for each in found]
    names = sorted({name for each in tallies for name in each})
    rows = [[name, *(_cell(each, name) for each in tallies)] for name in names]
    rows.append(["all", *(_total(each) for each in tallies)])
    rows.append(["commit", *(each["commit"][:10] for each in found)])
    head = ["passed / failed / skipped", *(each["exact"]["release"] for each in found)]
    return table(head, rows)


def tested() -> str:
    """The releases that all tests ran on, with their Pythons, in a line."""
    found = sorted(figures.all_kept("test-"), key=_version)
    pythons: dict[str, list[str]] = {}
    for release, python in (each["exact"]["release"].split() for each in found):
        pythons.setdefault(python, []).append(release)
    each = [f"jaxlib {', '.join(releases)} on {python}" for python, releases in pythons.items()]
    return "; ".join(each) or "no run of this history yet"


def _version(of: figures.Figures) -> Version:
    return Version(of["exact"]["release"].split()[0])


def _cell(tallies: dict[str, dict | None], name: str) -> str:
    if name not in tallies:
        return ""
    tally = tallies[name]
    return _counts([tally]) if tally else "crashed"


def _total(tallies: dict[str, dict | None]) -> str:
    return _counts([tally for tally in tallies.values() if tally])


def _counts(tallies: list[dict]) -> str:
    kinds = ("passed", "failed", "skipped")
    return " / ".join(str(sum(tally[kind] for tally in tallies)) for kind in kinds)
