"""A run as Markdown: its machine, the goals, the tables, and the plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from selection import FIXED, STOCK, of, values_of, values_of_all

_NEWEST, _WORKAROUND = "JAX's own fix", "workaround"
_SHOWN = (STOCK, FIXED, _NEWEST, _WORKAROUND)


def document(run: dict) -> str:
    """The whole page."""
    parts = [
        ["# Benchmark results"],
        _made_on(run),
        [f"> {note}" for note in run["notes"]],
        ["## Goals", *goals(run)],
        ["## 1. The pause", "![latency of each call](pause.png)", *_pause(run)],
        ["## 2. A hit", "![a hit, over stock's](hit.png)", *_hit(run)],
        ["## 3. A miss", "![cost of a miss](miss.png)", *_miss(run)],
        ["## 4. Making a function, importing, memory", *_functions(run)],
        ["## 5. The build", *_build(run)],
    ]
    return "\n\n".join(line for part in parts for line in part) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, or "Not measured." if it has no rows."""
    if not rows:
        return "Not measured."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Four digits, without an exponent."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 4 - len(str(int(abs(value)))) if abs(value) >= 1 else 4
    return f"{value:.{digits}f}"


def spread(figure: dict) -> str:
    """A figure with its interval."""
    if figure["low"] == figure["high"]:
        return number(figure["value"])
    return f"{number(figure['value'])} ({number(figure['low'])} to {number(figure['high'])})"


def _made_on(run: dict) -> Iterator[str]:
    machine, place = run["machine"], run["place"]
    gpus = f", {', '.join(machine['gpus'])}" if machine["gpus"] else ""
    device = run["versions"]["stock"]["device"]
    loads = f"{machine['load_before']} before, {machine['load_after']} after"
    yield "\n".join(
        [
            f"* machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB"
            f"{gpus}; {machine['system']}, Linux {machine['kernel']}",
            f"* devices: {place['found']}, {place['platform']} ({device})",
            f"* load of the machine: {loads}",
            *map(_gpu_reading, machine.get("readings", [])),
            f"* commit: {run['commit']}{', with --quick' if run['quick'] else ''}",
            *(
                f"* {name}: jax {each['jax']}, jaxlib {each['jaxlib']}, Python {each['python']}"
                for name, each in run["versions"].items()
            ),
        ]
    )
    yield "In brackets: 95 % intervals by the bootstrap. Ratios are of pairs within this run."


def _gpu_reading(reading: dict) -> str:
    """One reading of all GPUs, in a line."""
    shown = {"clocks.sm": "MHz", "clocks.max.sm": "MHz at most", "power.draw": "W",
             "power.limit": "W at most", "temperature.gpu": "degrees",
             "utilization.gpu": "% busy", "memory.used": "MiB used"}  # fmt: skip
    figures = {name: [gpu[name] for gpu in reading["gpus"]] for name in shown}
    parts = [
        f"{' '.join('?' if each is None else f'{each:.0f}' for each in figures[name])} {unit}"
        for name, unit in shown.items()
    ]
    return f"* GPUs {reading['when']}: {', '.join(parts)}; {reading['others']} processes of others"


def goals(run: dict) -> Iterator[str]:
    figures = run["figures"]
    rows = [["all entries and counters are right", _verdict(not run["wrong"]), _wrong(run)]]
    for goal, what, badness, limit in (
        (
            "a hit takes as long as stock's: median within 1.00 +- 0.01 (on / off in one process)",
            {"measure": "hit", "figure": "on / off in one process, wall time"},
            lambda value: abs(value - 1),
            0.01,
        ),
        (
            "the rule costs less than JAX's own conversion",
            {"measure": "miss", "figure": "rule / JAX's conversion"},
            float,
            1,
        ),
        (
            "the rule costs less than 1 % of the slow dispatch",
            {"measure": "miss", "figure": "rule / slow dispatch"},
            float,
            1,
        ),
        (
            "the rule's cost is linear: exponent at most 1.05",
            {"measure": "miss", "figure": "exponent"},
            float,
            1.05,
        ),
        (
            "explaining a miss costs less than 10 % of the slow dispatch at 1,000 outputs",
            {"measure": "miss", "figure": "explaining / slow dispatch", "n": 1000},
            float,
            10,
        ),
    ):
        rows.append([goal, *_goal(of(figures, **what), badness, limit)])
    yield table(["goal", "met", "worst"], rows)


def _wrong(run: dict) -> str:
    return "; ".join(run["wrong"][:3])


def _verdict(holds: bool) -> str:
    return "yes" if holds else "**no**"


def _goal(figures: Sequence[dict], badness: Callable[[float], float], limit: float) -> list[str]:
    if not figures:
        return ["not measured", ""]
    worst = max(figures, key=lambda figure: badness(figure["value"]))
    where = ", ".join(str(worst[part]) for part in ("case", "n") if worst[part])
    missed = sum(badness(figure["value"]) > limit for figure in figures)
    counted = f"{missed} of {len(figures)} miss it; " if missed else ""
    return [_verdict(not missed), f"{counted}{where}: {spread(worst)}{worst['unit']}"]


def entries(samples: Sequence[dict], start: str) -> str:
    """The entries after each call: all sequences that the samples have."""
    ways = dict.fromkeys(" ".join(map(str, each[f"{start}_entries"])) for each in samples)
    return " or ".join(ways)


def _pause(run: dict) -> Iterator[str]:
    samples = of(run["samples"], measure="pause")
    yield "Entries after each of the ten calls, cold and then warm:"
    rows = []
    for case, variant in values_of_all(samples, "case", "variant"):
        mine = of(samples, case=case, variant=variant)
        rows.append([case, variant, entries(mine, "cold"), entries(mine, "warm")])
    yield table(["keys", "variant", "cold", "warm"], rows)
    for start in ("cold", "warm"):
        for title, name in (
            ("The slowest of calls 2 to 10 over a steady call", "slowest / steady"),
            ("Milliseconds paid beyond steady calls, calls 2 to 10 together", "extra"),
            ("A steady call, ms", "steady call"),
        ):
            if start == "cold" or name == "slowest / steady":
                yield f"{title}, {start}:"
                yield _by_variant(of(run["figures"], measure="pause", figure=f"{name}, {start}"))
    of_dispatch = of(run["figures"], measure="pause", figure="extra, cold, dispatch")
    if of_dispatch:
        yield "The part of those milliseconds in the dispatch, without the wait for its results:"
        yield _by_variant(of_dispatch)


def _by_variant(figures: Sequence[dict], *, shown: Sequence[str] = _SHOWN) -> str:
    variants = [variant for variant in shown if of(figures, variant=variant)]
    rows = []
    for case, n in values_of_all(figures, "case", "n"):
        found = [of(figures, case=case, n=n, variant=variant) for variant in variants]
        cells = [spread(each[0]) if each else "" for each in found]
        rows.append([*([case] if case else []), str(n), *cells])
    first = ["keys"] if figures and figures[0]["case"] else []
    return table([*first, "plain leaves", *variants], rows)


def _hit(run: dict) -> Iterator[str]:
    figures = of(run["figures"], measure="hit")
    yield "The rule on over the rule off, in turn in one process:"
    rows = []
    for n in values_of(figures, "n"):
        wall, thread = (
            of(figures, n=n, figure=f"on / off in one process, {kind} time")
            for kind in ("wall", "thread")
        )
        rows.append([str(n), *(spread(each[0]) if each else "" for each in (wall, thread))])
    yield table(["plain leaves", "wall time", "the thread's processor time"], rows)
    yield "Over stock, in separate processes:"
    yield _by_variant(of(figures, figure="over stock, processes of each"))
    yield "Dispatch, microseconds:"
    yield _by_variant(of(figures, figure="dispatch"))
    yield "Instructions of a hit, counted by callgrind, on one CPU device:"
    counts = of(run["figures"], measure="instructions", figure="hit")
    yield _by_variant(counts, shown=(STOCK, FIXED, "fixed, switched off"))


def _miss(run: dict) -> Iterator[str]:
    yield "Processor time of the calling thread, microseconds:"
    ours = of(run["figures"], measure="miss", variant="ours")
    newest = of(run["figures"], measure="miss", variant="newest", figure="JAX's conversion")
    columns = (
        "rule",
        "rule, per output",
        "JAX's conversion",
        "slow dispatch",
        "rule / JAX's conversion",
        "rule / slow dispatch",
        "explaining / slow dispatch",
    )
    rows = []
    for case, n in values_of_all([each for each in ours if each["n"]], "case", "n"):
        cells = [spread(of(ours, case=case, n=n, figure=name)[0]) for name in columns]
        there = of(newest, case=case, n=n)
        rows.append([case, str(n), *cells, spread(there[0]) if there else ""])
    percent = [f"{name}, %" for name in columns[-2:]]
    head = [*columns[:-2], *percent, "conversion in the newest jax"]
    yield table(["outputs", "number", *head], rows)
    yield "Exponent of the rule's cost over the number of outputs (log-log fit from 10 outputs on):"
    exponents = [
        *of(ours, figure="exponent"),
        *of(run["figures"], measure="rule", figure="exponent"),
    ]
    views = {"miss": "in a dispatch", "rule": "Google Benchmark"}
    rows = [[each["case"], views[each["measure"]], spread(each)] for each in exponents]
    yield table(["outputs", "view", "exponent"], rows)
    yield "The C++ rule alone, on recorded dispatches (Google Benchmark), microseconds:"
    alone = of(run["figures"], measure="rule", figure="rule alone")
    yield _by_size(alone)
    yield "Instructions, counted by callgrind:"
    counted = of(run["figures"], measure="instructions", variant=FIXED)
    rows = []
    for case, n in values_of_all([e for e in counted if e["figure"] != "hit"], "case", "n"):
        names = ("rule", "slow dispatch", "rule / slow dispatch")
        cells = [spread(of(counted, case=case, n=n, figure=name)[0]) for name in names]
        rows.append([case, str(n), *cells])
    yield table(["outputs", "number", "rule", "slow dispatch", "rule / slow dispatch, %"], rows)


def _by_size(figures: Sequence[dict]) -> str:
    sizes = values_of(figures, "n")
    rows = [
        [case, *(spread(of(figures, case=case, n=n)[0]) for n in sizes)]
        for case in values_of(figures, "case")
    ]
    return table(["outputs", *map(str, sizes)], rows)


def _functions(run: dict) -> Iterator[str]:
    figures = of(run["figures"], measure="functions")
    variants = values_of(figures, "variant")
    rows = []
    for name in values_of(figures, "figure"):
        found = [of(figures, figure=name, variant=variant) for variant in variants]
        unit = next(each[0]["unit"] for each in found if each)
        cells = [spread(each[0]) if each else "" for each in found]
        rows.append([f"{name}, {unit}" if unit else name, *cells])
    yield table(["", *variants], rows)


def _build(run: dict) -> Iterator[str]:
    rows = [
        [f"{each['figure']}, {each['unit']}" if each["unit"] else each["figure"],
         f"{each['value']:.5f}" if not each["unit"] else number(each["value"])]
        for each in of(run["figures"], measure="build")
    ]  # fmt: skip
    yield table(["", ""], rows)
