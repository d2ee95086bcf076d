"""What `nvidia-smi` says about this machine's GPUs. Standard library only.

It is the one program that comes with every driver. Each query asks for few fields, since a field
that an old driver does not know makes the whole query fail.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from machine.pythons import clean_environment

_TIMEOUT_S = 60  # the first call may load the driver
_NUMBERS = (
    "clocks.sm",
    "clocks.max.sm",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "utilization.gpu",
    "memory.used",
)


class NoAnswer(Exception):
    """nvidia-smi is missing, or fails. The text is the last line of what it said."""


class Gpu(NamedTuple):
    """One GPU: what every driver knows of it."""

    index: int
    uuid: str
    name: str
    driver: str


class Features(NamedTuple):
    """What decides which CUDA a GPU can run, and who may use it."""

    capability: tuple[int, int]
    is_split: bool  # by MIG, into instances; a process sees one
    compute_mode: str


def gpus() -> list[Gpu]:
    """The GPUs, in the order of the PCI bus.

    Raises:
      NoAnswer: nvidia-smi does not list them.
    """
    rows = _query("gpu", "index", "uuid", "name", "driver_version")
    return [Gpu(int(index), uuid, name, driver) for index, uuid, name, driver in rows]


def features() -> list[Features]:
    """The features of each GPU. Needs a driver that supports CUDA 12.

    Raises:
      NoAnswer: nvidia-smi does not list them.
    """
    rows = _query("gpu", "compute_cap", "mig.mode.current", "compute_mode")
    return [Features(_version(cap), mig == "Enabled", mode) for cap, mig, mode in rows]


def readings() -> list[dict[str, float | None]]:
    """What each GPU does just now: clocks in MHz, watts, degrees Celsius, per cent, MiB.

    A figure that a GPU does not report is None. The list is empty if nvidia-smi does not answer.
    """
    try:
        rows = list(_query("gpu", *_NUMBERS))
    except NoAnswer:
        return []
    return [dict(zip(_NUMBERS, map(_number, row))) for row in rows]


def processes() -> set[int]:
    """The IDs of the processes that compute on the GPUs, as far as nvidia-smi knows them."""
    with contextlib.suppress(NoAnswer):
        return {int(pid) for (pid,) in _query("compute-apps", "pid") if pid.isdigit()}
    return set()


def _query(what: str, *fields: str) -> Iterator[list[str]]:
    command = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise NoAnswer("there is no nvidia-smi") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer(f"nvidia-smi does not run: {error}") from error
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    if done.returncode != 0 or any(len(row) != len(fields) for row in rows):
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        raise NoAnswer(f"nvidia-smi says: {said[-1] if said else 'nothing'}")
    return iter(rows)


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    try:
        return int(major), int(minor or 0)
    except ValueError:
        raise NoAnswer(f"nvidia-smi gives {text!r} as a version") from None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # [N/A], [Not Supported]
