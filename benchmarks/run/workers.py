"""The processes that measure, one for each environment, which take turns at each sample."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from machine.pythons import clean_environment
from paths import BENCHMARKS, LOGS
from refusal import Refusal
from run.plan import Place


class Worker(NamedTuple):
    """A process that answers requests."""

    name: str
    process: subprocess.Popen
    log: Path


def settings(place: Place) -> dict[str, str]:
    """The environment of a process that uses only that platform and those devices."""
    if place.node is None:
        flag = f"--xla_force_host_platform_device_count={place.devices}"
        return clean_environment() | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flag}
    return clean_environment() | place.node.settings()


@contextmanager
def working(pythons: dict[str, Path], place: Place) -> Iterator[dict[str, Worker]]:
    """Starts a worker in each environment, and ends them."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        yield {name: _start(stack, name, python, place) for name, python in pythons.items()}


def _start(stack: ExitStack, name: str, python: Path, place: Place) -> Worker:
    log = LOGS / f"bench-{name}.log"
    errors = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        [str(python), str(BENCHMARKS / "worker.py")],
        cwd=LOGS,  # from where Python cannot import a folder of the repository
        env=settings(place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    stack.callback(_end, process)
    return Worker(name, process, log)


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    process.stdout.close()
    # A request that was not sent is lost with its process.
    try:
        process.stdin.close()
    except BrokenPipeError:
        return


def ask(worker: Worker, measure: str, **arguments: object) -> dict:
    """The answer to one request.

    Raises:
      Refusal: the process ended instead.
    """
    try:
        print(json.dumps({"measure": measure, **arguments}), file=worker.process.stdin, flush=True)
        answer = worker.process.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        worker.process.wait()
        raise Refusal(f"the benchmark failed on {worker.name}: {last_line(worker.log)}")
    return json.loads(answer)


def last_line(log: Path) -> str:
    """The last line of a log, and the path of the log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1] if lines else 'it said nothing'} (all of it in {log})"
