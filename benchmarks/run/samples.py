"""Measurements 1 to 3: the requests to the workers, and their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from progress import Step, advancing
from run.plan import Place, Plan
from run.workers import Worker, ask, working

CASES = ("scalar key", "key array, P()", "key array, P('a')")
KINDS = ("no key", "one key", "all keys", "all keys, respelled")


class Variant(NamedTuple):
    """One of the variants that are compared."""

    name: str
    worker: str
    rule: bool | None = None  # None if the jaxlib has no such switch
    workaround: bool = False


VARIANTS = (
    Variant("stock", "stock"),
    Variant("fixed", "ours", rule=True),
    Variant("fixed, switched off", "ours", rule=False),
    Variant("JAX's own fix", "newest"),
    Variant("workaround", "stock", workaround=True),
)


def samples(step: Step, pythons: dict[str, Path], place: Place, plan: Plan) -> Iterator[dict]:
    """All samples, each with the name of what was measured.

    Raises:
      Refusal: a worker failed.
    """
    variants = [variant for variant in VARIANTS if variant.worker in pythons]
    counts = place.counts if plan.all_counts else [place.devices]
    with working(pythons, place) as workers, step("Measure the pause") as report:
        sizes = [(count, n, case) for count in counts for n in plan.pause_sizes for case in CASES]
        advance = advancing(report, len(sizes) * plan.pause_repeats)
        within = in_time(plan.seconds and plan.seconds.pause)
        for count, n, case in sizes:
            for repeat in within(plan.pause_repeats):
                yield from _pauses(
                    workers, in_turn(variants, repeat), case, n, repeat, count, place
                )
                advance(1)
    with step("Measure hits") as report:
        advance = advancing(report, plan.hit_processes * len(plan.hit_sizes) * plan.hit_repeats)
        within = in_time(plan.seconds and plan.seconds.hit)
        for process in within(plan.hit_processes):
            with working(pythons, place) as workers:
                for n in plan.hit_sizes:
                    for repeat in within(plan.hit_repeats):
                        order = in_turn(variants, repeat + process)
                        yield from _hits(workers, order, n, process, repeat, plan.hit_calls)
                        advance(1)
    with working(pythons, place) as workers, step("Measure slow dispatches") as report:
        advance = advancing(report, len(KINDS) * len(plan.miss_sizes) * plan.miss_repeats)
        within = in_time(plan.seconds and plan.seconds.miss)
        for kind in KINDS:
            for n in plan.miss_sizes:
                for repeat in within(plan.miss_repeats):
                    yield from _misses(workers, kind, n, repeat)
                    advance(1)


def in_time(seconds: float | None) -> Callable[[int], Iterator[int]]:
    """Returns a `range` that yields 0 in any case, and the other numbers while there is time."""
    end = None if seconds is None else time.monotonic() + seconds

    def within(count: int) -> Iterator[int]:
        for number in range(count):
            if number and end is not None and time.monotonic() > end:
                return
            yield number

    return within


def in_turn(variants: Sequence[Variant], repeat: int) -> list[Variant]:
    """The variants, in a different order each time, so that none always follows the same one."""
    start = repeat % len(variants)
    order = [*variants[start:], *variants[:start]]
    return order if repeat // len(variants) % 2 == 0 else order[::-1]


def _pauses(
    workers: dict[str, Worker],
    order: Sequence[Variant],
    case: str,
    n: int,
    repeat: int,
    devices: int,
    place: Place,
) -> Iterator[dict]:
    shown = f"{case}, {devices} GPU{'s'[: devices > 1]}" if place.node else case
    for name, worker, rule, workaround in order:
        request = {"case": case, "n": n, "rule": rule, "workaround": workaround, "devices": devices}
        answer = ask(workers[worker], "pause", **request)
        what = {"measure": "pause", "case": shown, "n": n, "variant": name, "repeat": repeat}
        yield what | answer


def _hits(
    workers: dict[str, Worker],
    order: Sequence[Variant],
    n: int,
    process: int,
    repeat: int,
    calls: int,
) -> Iterator[dict]:
    for name, worker, rule, workaround in order:
        answer = ask(workers[worker], "hit", n=n, calls=calls, rule=rule, workaround=workaround)
        what = {"measure": "hit", "case": CASES[0], "n": n, "variant": name}
        yield what | {"process": process, "repeat": repeat} | answer


def _misses(workers: dict[str, Worker], kind: str, n: int, repeat: int) -> Iterator[dict]:
    for name in ("ours", "newest"):
        if name in workers:
            answer = ask(workers[name], "miss", kind=kind, n=n)
            what = {"measure": "miss", "case": kind, "n": n, "variant": name, "repeat": repeat}
            yield what | answer
