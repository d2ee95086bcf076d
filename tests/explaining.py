"""Explains calls, and removes what differs from run to run."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import logging
import re
from collections.abc import Callable
from typing import Any

import jax
import jaxlib.pjit
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from reproduction import mesh_of

Call = Callable[[], Any]


def place(x: Any, spec: P) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh_of(4), spec))


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "jaxlib.pjit"]


def told(misses: list[jaxlib.pjit.Dispatch]) -> list[list[str]]:
    """The lines of each explanation, without what differs from run to run."""
    return [told_lines(str(miss)) for miss in misses]


def told_lines(text: str) -> list[str]:
    text = re.sub(r"\d+\.\d{3} ms", "T ms", text)
    text = re.sub(r"\S*(_test|explaining)\.py:\d+", "here", text)
    return [line.strip() for line in text.splitlines()]


def explained(*calls: Call) -> list[list[str]]:
    with jaxlib.pjit.explain() as misses:
        for call in calls:
            call()
    return told(misses)


def fresh(**options: Any) -> Any:
    def step(x: Any, n: Any = None) -> Any:
        return x

    return jax.jit(step, **options)


def with_callback(x: Any) -> Any:
    jax.debug.callback(lambda _: None, x)
    return x


def fixable() -> tuple[Call, Call]:
    """A function that raises, and a switch that stops that."""
    faults = ["not today"]

    def step(x: Any) -> Any:
        if faults:
            raise ValueError(faults[0])
        return x

    return step, faults.clear
