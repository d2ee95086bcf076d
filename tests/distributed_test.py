"""Keys on a mesh that two processes share, with two CPU devices each."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import json
import socket
import subprocess
import sys

import pytest

import interpreters
import processes
from time_limit import TIMEOUT_S

COUNT = 2


def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return f"localhost:{listener.getsockname()[1]}"


def started(address: str, index: int) -> subprocess.Popen[str]:
    script = str(interpreters.TESTS / "processes.py")
    return subprocess.Popen(
        [sys.executable, script, address, str(COUNT), str(index)],
        env=interpreters.environment(sys.executable, {"JAXLIB_PJIT_STRICT": "1"}, devices=2),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(process: subprocess.Popen[str]) -> dict[str, list[int]]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    # The collectives' own library may have written lines before it.
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def answers() -> list[dict[str, list[int]]]:
    address = free_address()
    running = [started(address, index) for index in range(COUNT)]
    try:
        return [answer_of(process) for process in running]
    finally:
        for process in running:
            process.kill()


@pytest.mark.parametrize("index", range(COUNT))
@pytest.mark.parametrize("name", [name for name, *_ in processes.CASES])
def test_one_placement_makes_one_cache_entry_in_every_process(
    name: str, index: int, answers: list[dict[str, list[int]]]
) -> None:
    assert answers[index][name] == [1, 1, 1, 1, 1]
