"""Keys on a mesh over two processes, with two CPU devices each."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import pytest

import process_groups
import processes

COUNT = 2


@pytest.fixture(scope="module")
def answers() -> list[process_groups.Answer]:
    return process_groups.answers([{}] * COUNT, devices=2)


@pytest.mark.parametrize("index", range(COUNT))
@pytest.mark.parametrize("name", [name for name, *_ in processes.CASES])
def test_one_placement_makes_one_cache_entry_in_every_process(
    name: str, index: int, answers: list[process_groups.Answer]
) -> None:
    assert answers[index][name] == [1, 1, 1, 1, 1]
