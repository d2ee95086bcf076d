"""Checks the entries and counters of a run, which must be the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

FIXED, SWITCHED_OFF = "fixed", "fixed, switched off"
NO_KEY, RESPELLED = "no key", "all keys, respelled"

Sample = dict[str, Any]


def wrong(samples: Sequence[Sample], devices: int) -> list[str]:
    """A line for each fault, without repeats."""
    return list(dict.fromkeys([*_pauses(samples), *_hits(samples), *_misses(samples, devices)]))


def _pauses(samples: Sequence[Sample]) -> Iterator[str]:
    for each in samples:
        if each["measure"] == "pause" and each["variant"] == FIXED:
            for start in ("cold", "warm"):
                entries = each[f"{start}_entries"]
                if set(entries) != {1}:
                    made = " ".join(map(str, entries))
                    yield f"pause: {each['case']}, {each['n']} leaves, {start}: entries {made}"


def _hits(samples: Sequence[Sample]) -> Iterator[str]:
    for each in samples:
        if each["measure"] != "hit" or each["variant"] not in (FIXED, SWITCHED_OFF):
            continue
        where = f"hit: {each['n']} leaves, {each['variant']}"
        for name, count in each["counted"].items():
            yield f"{where}: {name} rose by {count}"
        if each["entries"][0] != each["entries"][1]:
            yield f"{where}: entries rose from {each['entries'][0]} to {each['entries'][1]}"


def _misses(samples: Sequence[Sample], devices: int) -> Iterator[str]:
    for each in samples:
        if each["measure"] == "miss" and "counted" in each:
            goal = {
                "slow_dispatches": 1,
                "tables": int(each["case"] != NO_KEY),
                # On one device there are no two spellings.
                "respelled_results": each["n"] if each["case"] == RESPELLED and devices > 1 else 0,
                "left_to_stock": 0,
            }
            for name, count in goal.items():
                if (made := each["counted"].get(name, 0)) != count:
                    yield f"miss: {each['case']}, {each['n']} outputs: {name} {made}, not {count}"
