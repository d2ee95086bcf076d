"""Lets the tests import build.py's modules, and makes the rule raise its errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Last, so that no module there hides a module of the tests or of an installed package.
for folder in ("build", "benchmarks"):
    sys.path.append(str(Path(__file__).parent.parent / folder))

# jaxlib reads this when it is imported. A warning instead of an error would look like stock.
os.environ.setdefault("JAXLIB_PJIT_STRICT", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--jax-source",
        type=Path,
        metavar="DIR",
        help="a git checkout of jax with its tags, to try the port on",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpus(count): on how many GPUs the test runs")


@pytest.fixture
def flag() -> Iterator[None]:
    """Switches JAX's own flag, `jax_explain_cache_misses`, on for one test."""
    import jax  # after the test module has set the device count

    jax.config.update("jax_explain_cache_misses", True)
    yield
    jax.config.update("jax_explain_cache_misses", False)
