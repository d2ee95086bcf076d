"""Runs `processes.py` in several processes, which form one distributed program."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import interpreters
from time_limit import TIMEOUT_S

Answer = dict[str, list[int]]


def answers(settings: list[dict[str, str]], devices: int) -> list[Answer]:
    """What each process prints: the cache entries by the name of the case.

    Args:
      settings: one for each process.
      devices: the CPU devices of each process, if they run on CPUs.
    """
    address, count = _free_address(), len(settings)
    running = [
        _started([address, str(count), str(index)], each, devices)
        for index, each in enumerate(settings)
    ]
    try:
        return [_answer_of(process) for process in running]
    finally:
        for process in running:
            process.kill()


def _free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return f"localhost:{listener.getsockname()[1]}"


def _started(arguments: list[str], settings: dict[str, str], devices: int) -> subprocess.Popen[str]:
    script = str(interpreters.TESTS / "processes.py")
    strict = {"JAXLIB_PJIT_STRICT": "1"}
    return subprocess.Popen(
        [sys.executable, script, *arguments],
        env=interpreters.environment(sys.executable, strict | settings, devices=devices),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _answer_of(process: subprocess.Popen[str]) -> Answer:
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    # The library of the collectives may have printed lines before it.
    return json.loads(out.splitlines()[-1])
