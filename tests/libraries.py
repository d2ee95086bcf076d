"""Libraries on jax that some tests are of."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import pytest


def imported(name: str) -> Any:
    """A library that goes its own way with jax's releases, or a skip with what it said."""
    try:
        return importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        pytest.skip(f"{name} does not import beside jax {jax.__version__}: {error}")
