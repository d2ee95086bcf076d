"""Keys on a mesh over two processes of one node, with one GPU each."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "")

from typing import Any

import pytest

import gpus
import process_groups
import processes

gpus.or_skip()

COUNT = 2


@pytest.fixture(autouse=True)
def on_gpus(record_property: Any) -> None:
    gpus.or_fail()
    gpus.record(record_property, COUNT)


@pytest.fixture(scope="module")
def answers() -> list[process_groups.Answer]:
    gpus.or_fail()
    # One GPU each, as a batch system assigns them.
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[:COUNT]
    return process_groups.answers(
        [gpus.PLATFORM | {"CUDA_VISIBLE_DEVICES": name} for name in names], devices=1
    )


@pytest.mark.parametrize("index", range(COUNT))
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=gpus.row(COUNT, COUNT)) for name, *_ in processes.CASES],
)
def test_one_placement_makes_one_cache_entry_in_every_process(
    name: str, index: int, answers: list[process_groups.Answer]
) -> None:
    assert answers[index][name] == [1, 1, 1, 1, 1]
