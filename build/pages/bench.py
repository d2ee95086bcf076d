"""Figures of docs/benchmarks/results.json, which `build.py bench --out docs/benchmarks` writes."""

from __future__ import annotations

import json
from collections.abc import Callable

import markdown
from paths import ROOT
from selection import of, values_of

_RESULTS = ROOT / "docs" / "benchmarks" / "results.json"
_NEWEST = "JAX's own fix"
_CONVERSION = "JAX's conversion"


def made_on() -> str:
    """The commit and the machine."""
    run = _run()
    machine = run["machine"]
    return (
        f"Measured at commit {run['commit'][:10]} on {machine['cores']} cores ({machine['cpu']}, "
        f"{machine['system']})."
    )


def goals() -> str:
    """The goals, and whether each was met."""
    return "\n".join(markdown.goals(_run()))


def pause() -> str:
    """How much longer the calls after the first take than steady ones."""
    found = of(_run()["figures"], measure="pause", figure="extra, cold")
    rows = []
    for n in values_of(found, "n"):
        for case in values_of(found, "case"):
            cells = [_one(found, n=n, case=case, variant=name) for name in _variants(found)]
            rows.append([case, f"{n:,}", *cells])
    return markdown.table(["keys", "plain leaves", *_variants(found)], rows)


def respelled() -> str:
    """The cost of the rule and of JAX's own conversion if every key is respelled, in words."""
    rows = of(_run()["figures"], measure="miss", variant="ours", case="all keys, respelled")
    each = [
        f"{n:,}: {_one(rows, n=n, figure='rule')} us for the rule, "
        f"{_one(rows, n=n, figure=_CONVERSION)} us for the conversion"
        for n in values_of(of(rows, figure="rule"), "n")
    ]
    return "; ".join(each)


def explaining() -> str:
    """The cost of explaining, relative to a slow dispatch with 1,000 outputs, in words."""
    rows = of(_run()["figures"], measure="miss", figure="explaining / slow dispatch", n=1000)
    values = [each["value"] for each in rows]
    return f"{min(values):.1f} to {max(values):.1f} % of a slow dispatch with 1,000 outputs"


def share() -> str:
    """The part of a slow dispatch that the rule takes, for each kind of outputs, in words."""
    rows = of(_run()["figures"], measure="miss", figure="rule / slow dispatch", variant="ours")
    return "; ".join(
        f"{_range(of(rows, case=case), lambda value: f'{value:.2g}')} % with {case}"
        for case in values_of(rows, "case")
    )


def _range(rows: list[dict], shown: Callable[[float], str]) -> str:
    low, high = (shown(limit(each["value"] for each in rows)) for limit in (min, max))
    return low if low == high else f"{low} to {high}"


def _variants(rows: list[dict]) -> list[str]:
    return [name for name in ("stock", "fixed", _NEWEST) if of(rows, variant=name)]


def _one(rows: list[dict], **what: object) -> str:
    found = of(rows, **what)
    return markdown.number(found[0]["value"]) if found else ""


def _run() -> dict:
    return json.loads(_RESULTS.read_text())
