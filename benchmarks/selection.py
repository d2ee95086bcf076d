"""Picks samples or figures out of a run. Has no NumPy, since `build.py pages` uses it, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

STOCK, FIXED, SWITCHED_OFF = "stock", "fixed", "fixed, switched off"

Sample = dict[str, Any]


def of(samples: Sequence[Sample], **what: object) -> list[Sample]:
    """The samples that have all of these values."""
    return [each for each in samples if all(each.get(k) == v for k, v in what.items())]


def values_of(samples: Sequence[Sample], name: str) -> list[Any]:
    """The different values of one field of the samples, in their order."""
    return list(dict.fromkeys(each[name] for each in samples))


def values_of_all(samples: Sequence[Sample], *names: str) -> list[tuple]:
    """The different combinations of several fields of the samples, in their order."""
    return list(dict.fromkeys(tuple(each[name] for name in names) for each in samples))
