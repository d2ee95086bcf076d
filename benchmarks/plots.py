"""The plots of a run, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from selection import FIXED, STOCK, of, values_of

_COLOURS = {STOCK: "tab:red", FIXED: "tab:green"}


def draw(run: dict, folder: Path) -> None:
    """Writes all plots into a folder."""
    # Text stays text, and the same run makes the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "bench", "font.size": 8})
    for name, plot in (("pause", _pause), ("hit", _hit), ("miss", _miss)):
        _save(plot(run), folder / name)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path.with_suffix(".png"), dpi=110)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def _pause(run: dict) -> Figure:
    samples = of(run["samples"], measure="pause")
    cases, sizes = values_of(samples, "case"), values_of(samples, "n")
    figure, grid = plt.subplots(
        len(cases), len(sizes), figsize=(2.2 * len(sizes) + 1, 2 * len(cases) + 0.8),
        sharex=True, squeeze=False, layout="constrained",
    )  # fmt: skip
    for row, case in zip(grid, cases):
        for axes, n in zip(row, sizes):
            for variant in (STOCK, FIXED):
                mine = of(samples, case=case, n=n, variant=variant)
                calls = np.median([each["cold_ms"] for each in mine], axis=0)
                numbers = range(1, len(calls) + 1)
                axes.plot(numbers, calls, ".-", color=_COLOURS[variant], label=variant)
            axes.set_yscale("log")
            # Plain numbers. Those between the powers of ten appear only if there is room.
            axes.yaxis.set_major_formatter(LogFormatter())
            axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.2, 0.5)))
        row[0].set_ylabel(case)
    for axes, n in zip(grid[0], sizes):
        axes.set_title(f"{n} plain leaves")
    grid[0][0].legend()
    figure.supxlabel("call, from an empty dispatch cache")
    figure.supylabel("latency, ms (median)")
    return figure


def _hit(run: dict) -> Figure:
    figures = of(run["figures"], measure="hit")
    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    in_one = of(figures, figure="on / off in one process, wall time")
    _intervals(axes, in_one, f"{FIXED}: on / off in one process", 0.94)
    over = of(figures, figure="over stock, processes of each")
    for place, variant in zip((1.0, 1.06, 1.12), values_of(over, "variant")):
        _intervals(axes, of(over, variant=variant), f"{variant} / stock, processes", place)
    axes.axhspan(0.99, 1.01, color="tab:green", alpha=0.15, label="goal")
    axes.axhline(1, color="grey", linewidth=0.6)
    axes.set_xscale("log")
    axes.set_xlabel("plain leaves")
    axes.set_ylabel("dispatch of a hit, ratio")
    axes.legend()
    return figure


def _intervals(axes: Axes, figures: Sequence[dict], label: str, place: float) -> None:
    sizes = [each["n"] * place for each in figures]  # beside each other
    values = np.array([each["value"] for each in figures])
    ends = np.array([[each["low"] for each in figures], [each["high"] for each in figures]])
    axes.errorbar(sizes, values, yerr=np.abs(ends - values), fmt="o", capsize=3, label=label)


def _miss(run: dict) -> Figure:
    figures = of(run["figures"], measure="miss", variant="ours")
    cases = values_of(figures, "case")
    figure, row = plt.subplots(
        1, len(cases), figsize=(2.6 * len(cases) + 0.6, 3.2),
        sharey=True, squeeze=False, layout="constrained",
    )  # fmt: skip
    for axes, case in zip(row[0], cases):
        mine = of(figures, case=case)
        slow = of(mine, figure="slow dispatch")
        for name in ("slow dispatch", "JAX's conversion", "rule"):
            shown = of(mine, figure=name)
            axes.plot([e["n"] for e in shown], [e["value"] for e in shown], ".-", label=name)
        percent = [each["value"] / 100 for each in slow]
        axes.plot([e["n"] for e in slow], percent, ":", color="grey", label="1 % of it")
        axes.set(xscale="log", yscale="log", title=case)
    row[0][0].legend()
    figure.supxlabel("outputs")
    figure.supylabel("microseconds of a slow dispatch")
    return figure
