"""Measurement 4, in a process of its own: making and dropping jitted functions, and the memory."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path

import jax

_FUNCTIONS = 5000
_BATCHES = 5


def resident_mib() -> dict[str, float]:
    """The memory that this process holds, and how much of it is not pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = dict(line.removesuffix("kB").split(":", 1) for line in lines)
    return {
        "mib": round(int(kib["VmRSS"]) / 1024, 2),
        "own_mib": round(int(kib["RssAnon"]) / 1024, 2),
    }


def step(x: jax.Array) -> jax.Array:
    return x


def made_and_dropped() -> float:
    """The microseconds for one function, in the fastest of a few batches."""
    times = []
    gc.collect()
    gc.freeze()  # so that the collector does not visit jax itself each time
    for _ in range(_BATCHES):
        start = time.perf_counter()
        for _ in range(_FUNCTIONS // _BATCHES):
            jax.jit(step)
        # The functions are in reference cycles: collecting them is part of the cost.
        gc.collect()
        times.append(time.perf_counter() - start)
    return round(min(times) / (_FUNCTIONS // _BATCHES) * 1e6, 4)


def main() -> None:
    imported = resident_mib()
    create_us = made_and_dropped()
    created = resident_mib()
    answer = {"create_us": create_us}
    answer |= {f"imported_{name}": value for name, value in imported.items()}
    answer |= {f"created_{name}": value for name, value in created.items()}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
