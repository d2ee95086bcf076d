"""Computes the figures of a run from its samples. Needs NumPy and SciPy.

A figure is a dict: measure, figure, case, n, variant, unit, value, low, high, count. Low and high
are a 95 % bootstrap interval; n is None if a figure covers several sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from scipy import stats

from selection import FIXED, STOCK, SWITCHED_OFF, Sample, of, values_of, values_of_all

_RESAMPLES = 2000
_SEED = 0
_STEADY_FROM = 4  # calls 5 to 10
_FIT_FROM = 10  # outputs: with fewer, the fixed cost of a dispatch dominates

Interval = tuple[float, float, float]


def figures(samples: Sequence[Sample]) -> list[dict]:
    """All figures of a run."""
    makers = (pause, hit, miss, rule, instructions, functions, build)
    return [figure for maker in makers for figure in maker(of(samples, measure=maker.__name__))]


def median(values: Sequence[float]) -> Interval:
    """The median and its interval."""
    return _bootstrap((np.asarray(values, float),), np.median)


def median_ratio(over: Sequence[float], under: Sequence[float]) -> Interval:
    """The median of the ratios of pairs, each of which was measured in direct succession."""
    return median(np.asarray(over, float) / np.asarray(under, float))


def slowest_over_steady(calls: np.ndarray) -> Interval:
    """The slowest of the calls after the first over the median of the steady ones.

    First it takes the median of each call over the rows, or else the slowest would be noise.
    """
    return _of_calls(calls, lambda later, steady: later.max(axis=0) / steady)


def extra(calls: np.ndarray) -> Interval:
    """The time of all calls after the first, minus that of as many steady calls."""
    return _of_calls(calls, lambda later, steady: later.sum(axis=0) - len(later) * steady)


def steady(calls: np.ndarray) -> Interval:
    """The median of the calls from the fifth on."""
    return _of_calls(calls, lambda later, steady: steady)


def exponent(costs: dict[int, float]) -> Interval | None:
    """The slope of a line through the logarithms of size and cost, with the fit's own interval.

    None where there are too few sizes for one.
    """
    fitted = {size: cost for size, cost in costs.items() if size >= _FIT_FROM}
    if len(fitted) < 3:
        return None
    fit = stats.linregress(np.log(list(fitted)), np.log(list(fitted.values())))
    error = 1.96 * fit.stderr
    return float(fit.slope), float(fit.slope - error), float(fit.slope + error)


def _of_calls(calls: np.ndarray, statistic: Callable) -> Interval:
    def of_medians(*columns: np.ndarray, axis: int = -1) -> np.ndarray:
        medians = np.stack([np.median(column, axis=axis) for column in columns])
        return statistic(medians[1:], np.median(medians[_STEADY_FROM:], axis=0))

    return _bootstrap(tuple(np.asarray(calls, float).T), of_medians)


def _bootstrap(columns: tuple[np.ndarray, ...], statistic: Callable) -> Interval:
    value = float(statistic(*columns, axis=-1))
    if len(columns[0]) < 2:
        return value, value, value
    interval = stats.bootstrap(
        columns,
        statistic,
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=_RESAMPLES,
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return value, float(interval.low), float(interval.high)


def figure(
    measure: str,
    name: str,
    unit: str,
    interval: Interval,
    count: int,
    *,
    case: str = "",
    n: int | None = None,
    variant: str = "",
) -> dict:
    """One figure, with all of its parts."""
    value, low, high = interval
    what = {"measure": measure, "figure": name, "case": case, "n": n, "variant": variant}
    return what | {"unit": unit, "value": value, "low": low, "high": high, "count": count}


def pause(samples: Sequence[Sample]) -> Iterator[dict]:
    """Measurement 1."""
    for case, n, variant in values_of_all(samples, "case", "n", "variant"):
        mine = of(samples, case=case, n=n, variant=variant)
        what = {"case": case, "n": n, "variant": variant}
        for start, part in product(("cold", "warm"), ("", "dispatch")):
            times = f"{start}_{part}_ms" if part else f"{start}_ms"
            if times not in mine[0]:
                continue  # results of an older version, which did not time the dispatch
            calls = np.array([each[times] for each in mine])
            for name, unit, interval in (
                ("slowest / steady", "", slowest_over_steady(calls)),
                ("extra", "ms", extra(calls)),
                ("steady call", "ms", steady(calls)),
            ):
                title = ", ".join(filter(None, (name, start, part)))
                yield figure("pause", title, unit, interval, len(mine), **what)


def hit(samples: Sequence[Sample]) -> Iterator[dict]:
    """Measurement 2."""
    for n, variant in values_of_all(samples, "n", "variant"):
        mine = of(samples, n=n, variant=variant)
        what = {"n": n, "variant": variant}
        times = [each["hit_us"] for each in mine]
        yield figure("hit", "dispatch", "us", median(times), len(times), **what)
        if variant in (STOCK, SWITCHED_OFF):
            continue
        if variant == FIXED:
            off = of(samples, n=n, variant=SWITCHED_OFF)
            for name, part in (("wall", "hit_us"), ("thread", "thread_us")):
                pair = in_pairs(mine, off, part, "process", "repeat")
                title = f"on / off in one process, {name} time"
                yield figure("hit", title, "", median_ratio(*pair), len(pair[0]), **what)
        over, under = (
            by_process(each, "hit_us") for each in (mine, of(samples, n=n, variant=STOCK))
        )
        ratio = median_ratio(over, under)
        yield figure("hit", "over stock, processes of each", "", ratio, len(over), **what)


def in_pairs(
    over: Sequence[Sample], under: Sequence[Sample], part: str, *by: str
) -> tuple[list[float], list[float]]:
    """Two columns, whose rows are samples of the same turn."""
    others = {tuple(each[name] for name in by): each[part] for each in under}
    pairs = [(each[part], others[tuple(each[name] for name in by)]) for each in over]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def by_process(samples: Sequence[Sample], part: str) -> list[float]:
    """The median in each process, since the memory layout of a process affects all its samples."""
    processes = values_of(samples, "process")
    return [float(np.median([e[part] for e in of(samples, process=p)])) for p in processes]


def miss(samples: Sequence[Sample]) -> Iterator[dict]:
    """Measurement 3."""
    for case, variant in values_of_all(samples, "case", "variant"):
        costs = {}
        for n in values_of(of(samples, case=case, variant=variant), "n"):
            mine = of(samples, case=case, n=n, variant=variant)
            what = {"case": case, "n": n, "variant": variant}
            slow, conversion = (
                np.array([each[part] for each in mine]) for part in ("slow_us", "conversion_us")
            )
            parts = [
                ("slow dispatch", "us", median(slow)),
                ("JAX's conversion", "us", median(conversion)),
            ]
            if "on_us" in mine[0]:
                explained = np.array([each["explained_us"] for each in mine])
                cost = np.array([each["on_us"] - each["off_us"] for each in mine])
                costs[n] = float(np.median(cost))
                parts += [
                    ("rule", "us", median(cost)),
                    ("rule, per output", "us", median(cost / n)),
                    ("rule / slow dispatch", "%", median(cost / slow * 100)),
                    ("rule / JAX's conversion", "", median(cost / conversion)),
                    ("explaining / slow dispatch", "%", median((explained / slow - 1) * 100)),
                ]
            for name, unit, interval in parts:
                yield figure("miss", name, unit, interval, len(mine), **what)
        if fit := exponent(costs):
            yield figure("miss", "exponent", "", fit, len(costs), case=case, variant=variant)


def rule(samples: Sequence[Sample]) -> Iterator[dict]:
    """The rule alone, by Google Benchmark."""
    for case in values_of(samples, "case"):
        costs = {}
        for n in values_of(of(samples, case=case), "n"):
            times = [each["rule_ns"] / 1e3 for each in of(samples, case=case, n=n)]
            costs[n] = float(np.median(times))
            yield figure("rule", "rule alone", "us", median(times), len(times), case=case, n=n)
        if fit := exponent(costs):
            yield figure("rule", "exponent", "", fit, len(costs), case=case)


def instructions(samples: Sequence[Sample]) -> Iterator[dict]:
    """Instruction counts of a call: the lowest, without those of the counting itself."""
    if not samples:
        return
    frame = min(each["instructions"] for each in of(samples, part="frame"))
    counted = [each for each in samples if each["calls"]]
    for case, n in values_of_all(counted, "case", "n"):
        mine = of(counted, case=case, n=n)
        counts = {
            what: fewest(of(mine, part=what[0], variant=what[1]), frame)
            for what in values_of_all(mine, "part", "variant")
        }
        what = {"case": case, "n": n}
        for variant, name in (("stock", STOCK), ("on", FIXED), ("off", SWITCHED_OFF)):
            if ("hit", variant) in counts:
                count = counts["hit", variant]
                yield figure("instructions", "hit", "", same(count), 1, variant=name, **what)
        if ("rule", "on") in counts:
            cost, slow = counts["rule", "on"] - counts["rule", "off"], counts["slow", "off"]
            for name, unit, value in (
                ("rule", "", cost),
                ("slow dispatch", "", slow),
                ("rule / slow dispatch", "%", cost / slow * 100),
            ):
                yield figure("instructions", name, unit, same(value), 1, variant=FIXED, **what)


def fewest(samples: Sequence[Sample], frame: float) -> float:
    """The instructions of one call."""
    return min((each["instructions"] - frame) / each["calls"] for each in samples)


def same(value: float) -> Interval:
    """The interval of a value without spread."""
    return value, value, value


def functions(samples: Sequence[Sample]) -> Iterator[dict]:
    """Measurement 4."""
    for variant in values_of(samples, "variant"):
        mine = of(samples, variant=variant)
        for name, part, unit in (
            ("make and drop a function", "create_us", "us"),
            ("import jax", "import_s", "s"),
            ("resident after import", "imported_mib", "MiB"),
            ("resident after import, no pages of files", "imported_own_mib", "MiB"),
            ("resident after making functions", "created_mib", "MiB"),
            ("resident after making functions, no pages of files", "created_own_mib", "MiB"),
        ):
            values = [each[part] for each in mine]
            yield figure("functions", name, unit, median(values), len(mine), variant=variant)
            if variant != STOCK:
                pair = in_pairs(mine, of(samples, variant=STOCK), part, "repeat")
                title = f"{name}, over stock"
                ratio = median_ratio(*pair)
                yield figure("functions", title, "", ratio, len(mine), variant=variant)


def build(samples: Sequence[Sample]) -> Iterator[dict]:
    """Measurement 5."""
    for each in samples:
        for name, unit, value in (
            ("compile", "s", each["compile_s"]),
            ("check and pack", "s", each["pack_s"]),
            ("clean to wheel", "s", each["compile_s"] + each["pack_s"]),
            ("wheel, over stock", "", each["wheel_bytes"] / each["stock_bytes"]),
        ):
            yield figure("build", name, unit, same(value), 1)
