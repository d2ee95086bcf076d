"""The events of slow dispatches in JAX's monitoring and profiler, while misses are explained."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import jaxlib.pjit
import pytest

EVENT = "/jaxlib/pjit/slow_dispatch_duration"


@pytest.fixture
def exported() -> Iterator[list[tuple[float, dict[str, Any]]]]:
    """What an exporter on JAX's monitoring gets from our event."""
    found: list[tuple[float, dict[str, Any]]] = []

    def export(event: str, duration: float, **labels: Any) -> None:
        if event == EVENT:
            found.append((duration, labels))

    jax.monitoring.register_event_duration_secs_listener(export)
    yield found
    jax.monitoring.clear_event_listeners()


def slow_twice() -> None:
    @jax.jit
    def step(x: Any) -> Any:
        return x

    step(1.0)
    step(1)
    step(1)


LABELS = [
    {"fun_name": "step", "reason": "first call"},
    {"fun_name": "step", "reason": "type of the argument"},
]


def test_each_slow_dispatch_is_an_event_with_its_duration_function_and_reason(
    exported: list[tuple[float, dict[str, Any]]],
) -> None:
    with jaxlib.pjit.dispatches() as found:
        slow_twice()

    assert [labels for _, labels in exported] == LABELS
    assert [duration for duration, _ in exported] == [dispatch.seconds for dispatch in found]


def test_events_continue_after_the_listeners_were_cleared(
    exported: list[tuple[float, dict[str, Any]]],
) -> None:
    again: list[str] = []
    with jaxlib.pjit.explain():
        jax.monitoring.clear_event_listeners()
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, duration, **labels: again.append(event)
        )
        slow_twice()

    assert (exported, again.count(EVENT)) == ([], 2)


def test_without_explaining_there_is_no_event(
    exported: list[tuple[float, dict[str, Any]]],
) -> None:
    slow_twice()

    assert exported == []


def annotations_in(folder: Path) -> list[dict[str, Any]]:
    """The slow dispatches in a captured trace, oldest first."""
    (file,) = folder.rglob("*.trace.json.gz")
    with gzip.open(file) as trace:
        events = json.load(trace)["traceEvents"]
    found = [event for event in events if event.get("name") == "slow dispatch"]
    return sorted(found, key=lambda event: event["ts"])


def test_a_captured_trace_has_the_function_and_reason_of_each_slow_dispatch(tmp_path: Path) -> None:
    with jax.profiler.trace(str(tmp_path)), jaxlib.pjit.dispatches() as found:
        slow_twice()

    annotations = annotations_in(tmp_path)
    assert [each["args"] for each in annotations] == [
        {"function": "step", "reason": "first call"},
        {"function": "step", "reason": "type of the argument"},
    ]
    for annotation, dispatch in zip(annotations, found):
        assert annotation["dur"] / 1e6 >= dispatch.seconds  # in microseconds


def test_a_reason_with_commas_is_whole_in_a_captured_trace(tmp_path: Path) -> None:
    f = jax.jit(lambda x: x)
    mesh = jax.make_mesh((2,), ("a",))
    first, second = (
        jax.device_put(1.0, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())),
        jax.device_put(1.0, jax.devices()[1]),
    )
    with jax.profiler.trace(str(tmp_path)), jaxlib.pjit.explain():
        f(first), f(second)

    reasons = [each["args"]["reason"] for each in annotations_in(tmp_path)]
    assert reasons == ["first call", "sharding; different placement"]


def test_a_dispatch_that_raises_ends_its_annotation(tmp_path: Path) -> None:
    def fails(x: Any) -> Any:
        raise ValueError("not today")

    with jax.profiler.trace(str(tmp_path)), jaxlib.pjit.explain():
        with pytest.raises(ValueError, match="not today"):
            jax.jit(fails)(1.0)
        slow_twice()

    assert [each["args"]["reason"] for each in annotations_in(tmp_path)] == [
        "it raised", "first call", "type of the argument",
    ]  # fmt: skip


def test_without_explaining_a_captured_trace_has_no_annotation(tmp_path: Path) -> None:
    with jax.profiler.trace(str(tmp_path)):
        slow_twice()

    assert annotations_in(tmp_path) == []
