"""What a run measures with, where it measures, and how much.

Repeats interleave the variants, and give the intervals.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from machine.gpu_node import Node


class Place(NamedTuple):
    """Where to measure: on a number of CPU devices, or on the GPUs of a node."""

    devices: int
    node: Node | None = None

    @property
    def platform(self) -> str:
        """The name on the command line."""
        return "gpu" if self.node else "cpu"

    @property
    def counts(self) -> list[int]:
        """The numbers of devices to measure the pause on, in turn."""
        if not self.node:
            return [self.devices]
        return sorted({count for count in (1, 2, 4, 8) if count <= self.devices} | {self.devices})


class Kit(NamedTuple):
    """The wheels and environments to measure with."""

    stock_wheel: Path
    our_wheel: Path
    pythons: dict[str, Path]  # by worker
    reckoner: Path  # the Python of the environment without jax
    notes: list[str]


class Seconds(NamedTuple):
    """The time limit of each measurement."""

    pause: float
    hit: float
    miss: float


class Plan(NamedTuple):
    """Sizes and repeats."""

    pause_sizes: tuple[int, ...]  # plain leaves
    pause_repeats: int
    hit_sizes: tuple[int, ...]
    hit_processes: int  # how often the workers start anew, since memory layout affects the times
    hit_repeats: int
    hit_calls: int
    miss_sizes: tuple[int, ...]  # outputs
    miss_repeats: int
    process_repeats: int
    rule_seconds: float  # for each dispatch, in Google Benchmark
    instruction_sizes: tuple[int, ...]
    all_counts: bool = True  # measure the pause on each number of devices, or only on all
    seconds: Seconds | None = None  # after this time, only first repeats run


FULL = Plan(
    pause_sizes=(0, 10, 100, 1000, 3000),
    pause_repeats=11,
    hit_sizes=(1, 10, 100, 1000),
    hit_processes=8,
    hit_repeats=8,
    hit_calls=100,
    miss_sizes=(1, 10, 100, 1000, 10000),
    miss_repeats=11,
    process_repeats=11,
    rule_seconds=0.2,
    instruction_sizes=(1, 10, 100),
)
QUICK = Plan(
    pause_sizes=(0, 100, 1000),
    pause_repeats=3,
    hit_sizes=(1, 100),
    hit_processes=2,
    hit_repeats=6,
    hit_calls=40,
    miss_sizes=(1, 10, 100, 1000),
    miss_repeats=3,
    process_repeats=2,
    rule_seconds=0.02,
    instruction_sizes=(),  # callgrind would take as long as all the rest
)
# To compile for a GPU takes a second or more a program, and nobody knows how long on which.
QUICK_ON_GPUS = QUICK._replace(
    pause_sizes=(0, 100),
    miss_sizes=(1, 10, 100),
    all_counts=False,
    seconds=Seconds(pause=80, hit=40, miss=20),
)
