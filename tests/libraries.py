"""Libraries built on jax that some tests use."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import pytest


def imported(name: str) -> Any:
    """Imports a library. If it does not support this jax, the test is skipped with its error."""
    try:
        return importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        pytest.skip(f"{name} does not import beside jax {jax.__version__}: {error}")
