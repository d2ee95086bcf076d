"""One of the processes of a distributed run: feeds keys back and prints the cache entries.

`processes.py COORDINATOR COUNT INDEX`, with one GPU or two virtual CPU devices a process.
"""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from reproduction import call_back, counted, identity, keys, next_key

# Name, shape of the key array, spec, step. Axis "a" of the mesh goes across the processes. The mesh
# is 2x2, or 2x1 with one device a process.
CASES = (
    ("scalar", (), P(), next_key),
    ("array, replicated", (4,), P(), identity),
    ("array, split across processes", (4,), P("a"), identity),
    ("array, split within processes", (4,), P("b"), identity),
    ("matrix, split across processes", (4, 4), P("a"), identity),
    ("matrix, split both ways", (4, 4), P("a", "b"), identity),
)


def entries(shape: tuple[int, ...], spec: P, step: object) -> list[int]:
    mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("a", "b"))
    placement = NamedSharding(mesh, spec)
    key = jax.jit(lambda: keys("threefry2x32", shape), out_shardings=placement)()
    f, traces = counted(step)
    return call_back(f, traces, key, 5).entries


def main(coordinator: str, count: str, index: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, int(count), int(index))
    print(json.dumps({name: entries(*case) for name, *case in CASES}))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
