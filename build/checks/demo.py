"""Runs the reproduction on a stock jaxlib and on ours, and shows both side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich import box
from rich.table import Table

from checks.gpu_environments import Environments, gpu_environments
from machine.gpu_node import Node, rehearsal
from machine.pythons import Interpreter, clean_environment
from pages import figures
from paths import FIRST, REPRODUCTION, STARTED
from progress import Step, results, steps
from refusal import Refusal
from run import hardware
from wheels import products

_TITLES = {
    1: "The report: 3 fed-back calls, cold and then warm, on {line} {devices}",
    2: "The kind: 5 fed-back calls of key arrays, on a {mesh} mesh of {devices}",
}
_COLUMNS = (
    "program",
    "run",
    "entries,\ngoal",
    "entries,\nstock",
    "entries,\nours",
    "traces,\nstock/ours",
    "fed-back spec,\nstock",
    "fed-back spec,\nours",
    "slow call,\nstock",
    "slow call,\nours",
)
_LEGEND = "slow call: the slowest call after the first / a steady call, in milliseconds"


def demo(
    version: str,
    python: Interpreter,
    finished: Path | None = None,
    node: Node | None = None,
) -> int:
    """Builds what it needs, shows both, and returns the exit status: 1 if ours misses a goal.

    Args:
      finished: a finished wheel of ours to show; its version replaces `version`.
      node: the GPUs to show it on; None for CPU devices.

    Raises:
      Refusal: something could not be built or run.
    """
    with steps() as step:
        if node:
            made = gpu_environments(step, node, version, python, finished)
        else:
            made = _on_cpus(step, version, python, finished)
        settings = node.settings() if node else {}
        # One after the other: they time calls.
        stock = _reproduce(step, "stock", made.stock, settings)
        ours = _reproduce(step, "ours", made.ours, settings)
    show(stock, ours, node)
    status = judge(ours, made.wheel)
    if not node:
        _record(made.version, stock, ours)
    return status


def demo_of_overlay(python: Interpreter, site_packages: Path, out: Path, node: Node) -> int:
    """Shows an installed jaxlib with and without an overlay, and returns the exit status.

    Raises:
      Refusal: one of them could not be run.
    """
    site, folder = str(site_packages.resolve()), str(out.resolve())
    with steps() as step:
        stock, ours = (
            _reproduce(step, kind, python.path, node.settings() | {"PYTHONPATH": path})
            for kind, path in (("stock", site), ("ours", f"{folder}{os.pathsep}{site}"))
        )
    show(stock, ours, node)
    return judge(ours, out)


def _on_cpus(step: Step, version: str, python: Interpreter, finished: Path | None) -> Environments:
    with ThreadPoolExecutor(1) as background:
        if finished:
            version = products.finished_version(step, finished, python)
        source = products.fetched(step, version, python.target)
        # The installer mostly waits, so that this costs nothing beside the compiler.
        making = background.submit(products.jax_environment, step, "stock", source, python)
        wheel = finished or products.our_wheel(step, source, python)
        with_ours = products.jax_environment(step, "ours", wheel, python)
        return Environments(version, source, wheel, making.result(), with_ours)


def _record(version: str, stock: dict, ours: dict) -> None:
    """Records the rows and the command's time as figures. The first run has a figure of its own."""
    command = f"python3 build/build.py demo --jaxlib {version}"
    sides = {"stock": stock, "ours": ours}
    rows = {side: list(map(_exact, report["rows"])) for side, report in sides.items()}
    times = {side: [_cost(row) for row in report["rows"]] for side, report in sides.items()}
    exact = {"jax": ours["jax"], **rows}
    figures.record(f"demo-{version}", command, exact, {"slow / steady ms": times})
    if started := os.environ.get(STARTED):
        took = {"seconds": round(time.time() - float(started), 1), "load": hardware.load()}
        name = "first" if FIRST in os.environ else "again"
        figures.record(f"demo-{name}", "python3 build/build.py demo", measured=took)


def _exact(row: dict) -> dict:
    """The part of a row that has to be the same on every machine."""
    names = ("section", "case", "run", "entries", "goal", "traces", "outcome")
    return {name: row[name] for name in names} | {"spec": _spec(row["spec"])}


def _reproduce(step: Step, kind: str, python: Path, settings: dict[str, str]) -> dict:
    with step(f"Run the reproduction, {kind}"), tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [str(python), str(REPRODUCTION), "--json"],
            cwd=elsewhere,  # from where Python cannot import a folder of the repository
            env=clean_environment() | settings,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Refusal(f"{REPRODUCTION.name} failed on {kind} jaxlib ({python}): {last}")
    return json.loads(done.stdout)


def _key(row: dict) -> tuple[int, str, str]:
    return row["section"], row["case"], row["run"] or ""


def show(stock: dict, ours: dict, node: Node | None = None) -> None:
    """Prints the rows of two reports of the reproduction, stock's beside ours."""
    console = results()
    if node:
        console.print(f"{node.title}{rehearsal(ours['device'])}", highlight=False)
    where = {
        "devices": "GPUs" if node else "CPU devices",
        "line": min(ours["devices"], 2),
        "mesh": "2x2" if ours["devices"] > 3 else "2x1",
    }
    rows_of_stock = {_key(row): row for row in stock["rows"]}
    versions = f"jax {ours['jax']}, jaxlib {ours['jaxlib']}"
    for section, title in _TITLES.items():
        if not any(row["section"] == section for row in ours["rows"]):
            continue
        console.print(f"{title.format(**where)} ({versions})", highlight=False)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in _COLUMNS:
            table.add_column(column, no_wrap=column == "program")
        for row in ours["rows"]:
            if row["section"] == section:
                table.add_row(*_cells(rows_of_stock[_key(row)], row))
        console.print(table, highlight=False)
    console.print(_LEGEND, highlight=False)
    if ours["left_out"]:
        names = "; ".join(ours["left_out"])
        console.print(f"left out, since they need more GPUs: {names}", highlight=False)


def _cells(stock: dict, ours: dict) -> list[str]:
    both = (stock, ours)
    return [
        ours["case"],
        ours["run"] or "",
        _numbers(ours["goal"]),
        *(_entries(row) for row in both),
        "/".join(str(row["traces"]) for row in both),
        *(_spec(row["spec"]) for row in both),
        *(_cost(row) for row in both),
    ]


def _numbers(numbers: list[int]) -> str:
    return " ".join(map(str, numbers))


def _entries(row: dict) -> str:
    outcome = "" if row["outcome"] == "ok" else f", {row['outcome']}"
    style = "green" if row["ok"] else "red"
    return f"[{style}]{_numbers(row['entries'])}{outcome}[/{style}]"


def _spec(spec: str) -> str:
    """The spec, or the name of a sharding that has none."""
    return spec if spec.startswith("P(") else spec.partition("(")[0].removesuffix("Sharding")


def _cost(row: dict) -> str:
    if row["slow_ms"] is None:
        return ""
    return f"{row['slow_ms']:.2f} / {row['steady_ms']:.2f}"


def judge(ours: dict, wheel: Path) -> int:
    """Says whether our report reaches every goal, and returns the exit status."""
    if not ours["fixed"]:
        print(f"{wheel}: is installed, but the fix is not on in it", file=sys.stderr)
        return 1
    missed = [row for row in ours["rows"] if not row["ok"]]
    for row in missed:
        what = " ".join(str(part) for part in _key(row)[1:] if part)
        print(f"ours misses the goal: section {row['section']}, {what}", file=sys.stderr)
    if not missed:
        what = "wheel" if wheel.suffix == ".whl" else "overlay"
        print(f"Ours reaches the goal in every row. The {what}: {wheel}")
    return 1 if missed else 0
