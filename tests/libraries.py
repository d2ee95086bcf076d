"""Libraries built on jax that some tests use."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import pytest


def imported(name: str) -> Any:
    """A library that may not import beside this jax, or a skip with its error."""
    try:
        return importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        pytest.skip(f"{name} does not import beside jax {jax.__version__}: {error}")
