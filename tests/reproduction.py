"""Feeds PRNG keys back through `jax.jit` and shows the entries of jaxlib's fastpath cache.

It runs by itself on any jax from 0.6 up, on four virtual CPU devices, or with JAX_PLATFORMS=cuda on
GPUs. It prints a table, or one JSON object with --json. `ok` says whether a row is as it should be.
The exit status does not.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

os.environ["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = " ".join(
    # Of two equal flags the last one counts, so the caller's number stays.
    ["--xla_force_host_platform_device_count=4", os.environ.get("XLA_FLAGS", "")]
).strip()

import jax
import jaxlib
import jaxlib.version
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Step = Callable[[Any], Any]

COST_LEAVES = 100  # plain leaves of the timed step: enough for the slow call to show
COST_CALLS = 9
COST_REPEATS = 3  # the slow call is slow in each repeat, other work of the machine is not


@dataclass(frozen=True)
class Case:
    """A program whose output is fed back, and the right cache entries after each call."""

    section: int
    name: str
    make: Callable[[str], Any]  # from the PRNG implementation's name to the first argument
    step: Step
    goal: tuple[int, ...]
    devices: int = 1
    feeds_back: bool = True
    timed: bool = False

    @property
    def least(self) -> int:
        """The fewest devices that show it. 2x2 may become 2x1, unless the program transposes."""
        return self.devices if self.step is transpose else min(self.devices, 2)


@dataclass(frozen=True)
class Run:
    """The result of one run of a case."""

    entries: list[int]
    traces: int
    outcome: str
    last: Any


@dataclass(frozen=True)
class Row:
    """One row of the report."""

    section: int
    case: str
    run: str | None
    entries: list[int]
    goal: list[int]
    traces: int
    goal_traces: int
    spec: str
    outcome: str
    goal_outcome: str
    slow_ms: float | None
    steady_ms: float | None
    ok: bool


def mesh_of(count: int) -> Mesh:
    """A mesh of the first `count` devices: a line, or for four of them 2x2.

    If there are fewer than four devices, the 2x2 is 2x1 or 1x1, for the tests on GPUs.
    """
    devices = np.array(jax.devices()[:count])
    if count < 4:
        return Mesh(devices, ("a",))
    rows = 1 if devices.size < 2 else 2
    columns = 2 if devices.size == 4 else 1
    return Mesh(devices[: rows * columns].reshape(rows, columns), ("a", "b"))


def keys(impl: str, shape: tuple[int, ...] = ()) -> jax.Array:
    """An uncommitted key array."""
    key = jax.random.key(0, impl=impl)
    return jax.random.split(key, shape) if shape else key


def placed(count: int, spec: P, shape: tuple[int, ...] = ()) -> Callable[[str], jax.Array]:
    """A maker of key arrays on a mesh of `count` devices."""
    return lambda impl: jax.device_put(keys(impl, shape), NamedSharding(mesh_of(count), spec))


def placed_float(count: int, spec: P, shape: tuple[int, ...] = ()) -> Callable[[str], jax.Array]:
    """A maker of plain arrays. It ignores the PRNG implementation."""
    return lambda impl: jax.device_put(
        np.ones(shape, np.float32), NamedSharding(mesh_of(count), spec)
    )


def key_data(impl: str) -> jax.Array:
    """The raw data of a replicated key, for the workaround."""
    data = jax.random.key_data(keys(impl))
    return jax.device_put(data, NamedSharding(mesh_of(2), P()))


def next_key(key: jax.Array) -> jax.Array:
    return jax.random.split(key)[0]


def next_key_data(data: jax.Array) -> jax.Array:
    """The workaround: a key only inside the function. The size of the data tells its kind."""
    impl = {2: "threefry2x32", 4: "rbg"}[data.shape[-1]]
    return jax.random.key_data(next_key(jax.random.wrap_key_data(data, impl=impl)))


def identity(x: Any) -> Any:
    return x


def transpose(x: jax.Array) -> jax.Array:
    return x.T


def increment(x: jax.Array) -> jax.Array:
    return x + 1


ONES = (1, 1, 1)
FIVE_ONES = (1, 1, 1, 1, 1)

SECTION_1 = (
    Case(1, "key, 2 devices, P()", placed(2, P()), next_key, ONES, 2, timed=True),
    Case(1, "control: uncommitted key", keys, next_key, ONES),
    Case(1, "control: key, 1-device mesh", placed(1, P()), next_key, ONES),
    Case(1, "control: float, 2 devices", placed_float(2, P()), increment, ONES, 2),
    Case(1, "control: same fresh key", placed(2, P()), next_key, ONES, 2, feeds_back=False),
    Case(1, "workaround: raw key data", key_data, next_key_data, (1, 1, 1, 1), 2),
)
NO_TRACING = Case(1, "key, no_tracing()", placed(2, P()), next_key, (1, 1), 2)

SECTION_2 = (
    Case(2, "key (), P()", placed(4, P()), identity, FIVE_ONES, 4, timed=True),
    Case(2, "key (4,), P()", placed(4, P(), (4,)), identity, FIVE_ONES, 4, timed=True),
    Case(2, "key (4,4), P('a')", placed(4, P("a"), (4, 4)), identity, FIVE_ONES, 4, timed=True),
    Case(2, "key (4,4), P('a',None)", placed(4, P("a", None), (4, 4)), identity, FIVE_ONES, 4,
         timed=True),
    Case(2, "key (4,4), P('a','b')", placed(4, P("a", "b"), (4, 4)), identity, FIVE_ONES, 4,
         timed=True),
    Case(2, "float (4,4), P('a')", placed_float(4, P("a"), (4, 4)), identity, FIVE_ONES, 4),
    Case(2, "float (4,4), x.T", placed_float(4, P("a", "b"), (4, 4)), transpose,
         (1, 2, 2, 2, 2), 4),
)  # fmt: skip


def base_array(x: Any) -> Any:
    """The base array of an extended-dtype array. A plain array is its own."""
    return getattr(x, "_base_array", getattr(x, "_data", x))


def spec_of(x: Any) -> str:
    """The spelling of the sharding of `x`'s base array, in the same form on every release."""
    sharding = base_array(x).sharding
    spelled = sharding.spec if isinstance(sharding, NamedSharding) else sharding
    return str(spelled).replace("PartitionSpec(", "P(")


def counted(step: Step) -> tuple[Any, list[None]]:
    """A new jitted function with its own cache, and a list with one item for each trace."""
    traces: list[None] = []

    def traced(x: Any) -> Any:
        traces.append(None)
        return step(x)

    return jax.jit(traced), traces


def call_back(f: Any, traces: list[None], first: Any, calls: int, feeds_back: bool = True) -> Run:
    """Calls `f` on `first`, then on its own outputs. Records the cache entries after each call."""
    before = len(traces)
    entries: list[int] = []
    outcome = "ok"
    x = out = first
    for _ in range(calls):
        try:
            out = f(x)
        except Exception as error:  # what it raises is the row's outcome
            outcome = f"raises {type(error).__name__}"
            break
        entries.append(f._cache_size())
        x = out if feeds_back else first
    return Run(entries, len(traces) - before, outcome, out)


def cold_and_warm(case: Case, impl: str) -> tuple[Run, Run]:
    """The calls of the case on a new function, and then again from the start."""
    f, traces = counted(case.step)
    first = case.make(impl)
    calls = len(case.goal)
    return (
        call_back(f, traces, first, calls, case.feeds_back),
        call_back(f, traces, first, calls, case.feeds_back),
    )


def without_tracing(case: Case, impl: str) -> Run:
    """The calls of the case under no_tracing, on a function that was called once before."""
    f, traces = counted(case.step)
    first = case.make(impl)
    f(first)
    with jax.no_tracing(True):
        return call_back(f, traces, first, len(case.goal))


def timed_calls(case: Case) -> list[float]:
    """The milliseconds of each fed-back call of the step, with plain leaves beside the key."""
    first = case.make("threefry2x32")
    placement = NamedSharding(base_array(first).sharding.mesh, P())
    leaves = [jax.device_put(np.zeros((), np.float32), placement)] * COST_LEAVES
    f = jax.jit(lambda x, leaves: (case.step(x), leaves))
    x, times = first, []
    for _ in range(COST_CALLS):
        start = time.perf_counter()
        x, _ = jax.block_until_ready(f(x, leaves))
        times.append((time.perf_counter() - start) * 1e3)
    return times


def cost(case: Case) -> tuple[float, float]:
    """The slowest of the calls after the first, and a steady one, in milliseconds."""
    gc.collect()
    gc.disable()
    try:
        runs = [timed_calls(case) for _ in range(COST_REPEATS)]
    finally:
        gc.enable()
    best = [min(call) for call in zip(*runs)]
    return round(max(best[1:]), 3), round(statistics.median(best[-4:]), 3)


def row_of(case: Case, run: str | None, done: Run, traces: int, timed: bool) -> Row:
    slow_ms, steady_ms = cost(case) if timed else (None, None)
    goal = list(case.goal)
    ok = (done.entries, done.traces, done.outcome) == (goal, traces, "ok")
    return Row(
        case.section, case.name, run, done.entries, goal, done.traces, traces,
        spec_of(done.last), done.outcome, "ok", slow_ms, steady_ms, ok,
    )  # fmt: skip


def there(cases: tuple[Case, ...]) -> Iterator[Case]:
    """The cases that there are enough devices for."""
    return (case for case in cases if case.least <= len(jax.devices()))


def section_1(impl: str) -> Iterator[Row]:
    for case in there(SECTION_1):
        cold, warm = cold_and_warm(case, impl)
        yield row_of(case, "cold", cold, 1, case.timed)
        yield row_of(case, "warm", warm, 0, False)
    for case in there((NO_TRACING,)):
        yield row_of(case, "warm", without_tracing(case, impl), 0, False)


def section_2(impl: str) -> Iterator[Row]:
    for case in there(SECTION_2):
        f, traces = counted(case.step)
        done = call_back(f, traces, case.make(impl), len(case.goal))
        yield row_of(case, None, done, 1, case.timed)


def is_fixed() -> bool:
    """Whether this jaxlib has the fix, and has it on."""
    try:
        return importlib.import_module("jaxlib._pjit").physical_out_shardings()
    except ImportError:
        return False


def report(impl: str = "threefry2x32") -> dict[str, Any]:
    """All rows, as --json prints them."""
    rows = [*section_1(impl), *section_2(impl)]
    cases = (*SECTION_1, NO_TRACING, *SECTION_2)
    return {
        "device": jax.devices()[0].device_kind,
        "devices": len(jax.devices()),
        "left_out": [case.name for case in cases if case not in there(cases)],
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "fixed": is_fixed(),
        "rows": [asdict(row) for row in rows],
        "ok": all(row.ok for row in rows),
    }


def as_columns(table: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*table)]
    for line in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()


def short_spec(spec: str) -> str:
    """The whole spec, or the kind of another sharding, whose text names devices."""
    return spec if spec.startswith("P(") else spec.partition("(")[0]


def as_cells(row: dict[str, Any]) -> list[str]:
    cost = "" if row["slow_ms"] is None else f"{row['slow_ms']:.2f} / {row['steady_ms']:.2f}"
    return [
        str(row["section"]), row["case"], row["run"] or "",
        " ".join(map(str, row["entries"])), " ".join(map(str, row["goal"])),
        str(row["traces"]), short_spec(row["spec"]), row["outcome"], cost,
        "ok" if row["ok"] else "NOT OK",
    ]  # fmt: skip


def as_text(result: dict[str, Any]) -> str:
    """The report for people."""
    titles = ["", "case", "run", "entries", "goal", "traces", "spec", "outcome",
              "slow / steady ms", ""]  # fmt: skip
    fix = "on" if result["fixed"] else "off or absent"
    wrong = sum(not row["ok"] for row in result["rows"])
    return "\n".join([
        f"jax {result['jax']}, jaxlib {result['jaxlib']}, fix {fix}",
        "",
        *as_columns([titles, *map(as_cells, result["rows"])]),
        "",
        "All rows as they should be." if result["ok"] else f"{wrong} rows not as they should be.",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    # The number of GPUs is not ours to set.
    if len(jax.devices()) < 4 and os.environ["JAX_PLATFORMS"] == "cpu":
        parser.error(f"needs 4 devices, has {len(jax.devices())}; unset XLA_FLAGS, JAX_PLATFORMS")
    result = report()
    print(json.dumps(result) if as_json else as_text(result))


if __name__ == "__main__":
    main()
