"""Figures of `build.py stress`, for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Sequence

from markdown import table
from pages import figures

_THREADS = {
    "calls": "calls",
    "functions": "functions made, one thread each",
    "wrong entries": "of these with a second cache entry",
    "raced functions": "functions that were new for all threads at once",
    "wrong values": "results with another value",
}
_COUNTERS = {
    "slow_dispatches": "slow dispatches counted",
    "tables": "tables made",
    "left_to_stock": "left to stock",
}


def load() -> str:
    """Both tables, below their source."""
    found = figures.all_kept("stress-")
    if not found:
        return figures.not_run("python3 build/build.py stress")
    return "\n\n".join(
        f"{figures.source(each)}\n\n{tables(each['measured']['runs'])}" for each in found
    )


def tables(runs: Sequence[dict]) -> str:
    """A table for the threads, and one for the memory."""
    threads = [each for each in runs if each["program"] == "threads"]
    functions = [each for each in runs if each["program"] == "functions"]
    return "\n\n".join([_threads(threads), _functions(functions)])


def _threads(runs: Sequence[dict]) -> str:
    rows = [[says, *(f"{each[name]:,}" for each in runs)] for name, says in _THREADS.items()]
    rows += [
        [says, *(f"{each['counters'][name]:,}" if each["counters"] else "" for each in runs)]
        for name, says in _COUNTERS.items()
    ]
    return table(["threads", *(each["jaxlib"] for each in runs)], rows)


def _functions(runs: Sequence[dict]) -> str:
    memory = [each["resident MiB"] for each in runs]
    count = runs[0]["functions"]
    rows = [
        [f"resident after {count * (index + 1) // len(memory[0]):,}, MiB", *map(str, values)]
        for index, values in enumerate(zip(*memory))
        if index in (0, len(memory[0]) // 2, len(memory[0]) - 1)
    ]
    rows += [
        [f"{kind} alive, before / after", *(_alive(each, kind) for each in runs)]
        for kind in ("jitted functions", "dispatch functions")
    ]
    return table(["functions made and dropped", *(each["jaxlib"] for each in runs)], rows)


def _alive(run: dict, kind: str) -> str:
    if kind not in run["alive before"]:
        return ""
    return f"{run['alive before'][kind]} / {run['alive after'][kind]}"
