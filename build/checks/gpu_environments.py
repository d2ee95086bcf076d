"""Environments with JAX's CUDA plugin and stock jaxlib or ours, for the GPUs of a node.

The demo, the tests and the benchmark share them: CUDA's libraries are three gigabytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from machine.gpu_node import Node, check_environment
from machine.pythons import Interpreter
from paths import TEST_REQUIREMENTS
from progress import Step
from wheels import products


class Environments(NamedTuple):
    """The Pythons of both environments, and what is in them."""

    version: str  # of jax, and of the stock jaxlib
    stock_wheel: Path
    wheel: Path
    stock: Path
    ours: Path


def gpu_environments(
    step: Step, node: Node, version: str, python: Interpreter, finished: Path | None
) -> Environments:
    """Makes both environments, unless they are up to date, and checks that each finds the GPUs.

    Args:
      finished: a finished wheel of ours, whose version replaces `version`; None to build one.

    Raises:
      Refusal: something could not be installed or built, or JAX finds no GPU.
    """
    if finished:
        version = products.finished_version(step, finished, python)
    needed = gpu_requirements(node, version)
    source = products.fetched(step, version, python.target)
    wheel = finished or products.our_wheel(step, source, python)
    stock, ours = (
        products.jax_environment(step, f"{kind}-{node.kind}", jaxlib, python, needed)
        for kind, jaxlib in (("stock", source), ("ours", wheel))
    )
    with step("Check that JAX finds the GPUs"):
        for each in (stock, ours):
            check_environment(each, node)
    return Environments(version, source, wheel, stock, ours)


def gpu_requirements(node: Node, version: str) -> list[str]:
    """What to install beside jaxlib: JAX's plugin, and pytest for the tests."""
    lines = TEST_REQUIREMENTS.read_text().splitlines()
    return [*node.requirements(version), *(each for each in lines if each.startswith("pytest=="))]
