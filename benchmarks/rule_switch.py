"""Our jaxlib's switch of the rule, and its counters. Does nothing on a stock jaxlib."""

from __future__ import annotations

import importlib
from types import ModuleType


def ours() -> ModuleType | None:
    """`jaxlib._pjit`, or None in a stock jaxlib."""
    try:
        return importlib.import_module("jaxlib._pjit")
    except ImportError:
        return None


def set_rule(enabled: bool | None) -> None:
    """Switches the rule on or off. None does nothing, for a stock jaxlib."""
    if enabled is not None:
        ours().set_physical_out_shardings(enabled)


def counters() -> dict[str, int]:
    """What the rule has counted, or nothing in a stock jaxlib."""
    module = ours()
    return module.counters() if module else {}


def counted(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The counters that rose, and by how much."""
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}
