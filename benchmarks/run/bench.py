"""Measures stock jaxlib, ours, JAX's own fix and the workaround side by side: `build.py bench`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from checks.gpu_environments import gpu_environments, gpu_requirements
from checks.releases import newest_release
from machine.environments import environment
from machine.gpu_node import Node, check_environment, rehearsal
from machine.pythons import Interpreter, clean_environment
from paths import BENCH_REQUIREMENTS, BENCHMARKS, LOGS, VENVS
from progress import Step, steps
from refusal import Refusal, refusing_os_errors
from run import hardware, processes, samples
from run.compare import SCHEMA
from run.plan import FULL, QUICK, QUICK_ON_GPUS, Kit, Place
from run.workers import ask, last_line, working
from wheels import products

_CPU_DEVICES = 2  # as many as it takes to show the bug


def bench(
    version: str,
    python: Interpreter,
    out: Path,
    *,
    finished: Path | None,
    node: Node | None,
    devices: int | None,
    quick: bool,
    check: bool,
) -> int:
    """Runs the benchmark, and returns the exit status: 1 if `check` is set and a check fails.

    Args:
      finished: a finished wheel of ours to measure, whose version replaces `version`. Measurements
        that need a compiler or valgrind are left out.
      node: the GPUs to measure on; None for the CPU.
      devices: how many CPU devices.

    Raises:
      Refusal: bad input, or something could not be built or run.
    """
    if devices is not None and devices < 1:
        raise Refusal(f"--devices {devices}: give 1 or more")
    place = Place(len(node.gpus), node) if node else Place(devices or _CPU_DEVICES)
    plan = (QUICK_ON_GPUS if node else QUICK) if quick else FULL
    with refusing_os_errors(f"write to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    load_before = hardware.load()  # before anything is made for the run
    with steps() as step:
        kit = _kit(step, version, python, finished, node)
        readings = [hardware.gpu_reading("before")] if node else []
        run = _facts(kit, place, quick, load_before)
        run["samples"] = list(samples.samples(step, kit.pythons, place, plan))
        if node:
            readings.append(hardware.gpu_reading("after"))
            run["machine"]["readings"] = readings
            run["notes"] += _tenants(readings)
        else:
            builds = finished is None
            run["samples"] += processes.samples(step, kit, python, plan, builds=builds)
        run["machine"]["load_after"] = hardware.load()
        wrong = _report(step, kit, run, out)
    print((out / "summary.md").read_text())
    print(f"All of it is in {out}")
    return _judge(wrong) if check else 0


def _kit(
    step: Step, version: str, python: Interpreter, finished: Path | None, node: Node | None
) -> Kit:
    notes = []
    if node:
        made = gpu_environments(step, node, version, python, finished)
        version, source, wheel = made.version, made.stock_wheel, made.wheel
        pythons = {"stock": made.stock, "ours": made.ours}
        notes.append(
            "Measurements that never use a GPU were left out: making a function, importing, "
            "memory, the rule alone, instruction counts and the build."
        )
    else:
        if finished:
            version = products.finished_version(step, finished, python)
            notes.append(
                "With --wheel nothing is built: the rule alone, instruction counts and the build, "
                "which need a compiler or valgrind, were left out."
            )
        source = products.fetched(step, version, python.target)
        wheel = finished or products.our_wheel(step, source, python)
        pythons = {
            "stock": products.jax_environment(step, "stock", source, python),
            "ours": products.jax_environment(step, "ours", wheel, python),
        }
    try:
        pythons["newest"] = _newest(step, node)
    except Refusal as refusal:
        notes.append(f"JAX's own fix was not measured: {refusal}")
    with step("Make the environment for the figures and plots"):
        reckoner = environment(VENVS / f"bench-{python.label}", python, [BENCH_REQUIREMENTS])
    return Kit(source, wheel, pythons, reckoner, notes)


def _newest(step: Step, node: Node | None) -> Path:
    """The Python of an environment with the newest jax, which has JAX's own fix.

    Raises:
      Refusal: there is no Python for it, it cannot be installed, or it finds no GPU.
    """
    release = newest_release(step, to_build=False)
    jaxlib = products.fetched(step, release.version, release.python.target)
    kind, more = (
        (f"stock-{node.kind}", gpu_requirements(node, release.version)) if node else ("stock", [])
    )
    python = products.jax_environment(step, kind, jaxlib, release.python, more)
    if node:
        check_environment(python, node)
    return python


def _tenants(readings: Sequence[dict]) -> list[str]:
    most = max(reading["others"] for reading in readings)
    if not most:
        return []
    return [
        f"{most} processes of others used the GPUs before or after the run: its times are noise. "
        "Entries and counts hold."
    ]


def _facts(kit: Kit, place: Place, quick: bool, load_before: float) -> dict:
    machine = hardware.machine() | {"load_before": load_before}
    with working(kit.pythons, place) as workers:
        versions = {name: ask(worker, "facts") for name, worker in workers.items()}
    found = versions["stock"]["devices"]
    notes = list(kit.notes)
    if said := place.node and rehearsal(versions["stock"]["device"]):
        notes.append(f"{place.node.title}{said}.")
    if found == 1:
        notes.append(
            "One device: logical and physical sharding are the same object there, so the pause and "
            "its second entry cannot be shown. Take a machine with two, or --platform cpu."
        )
    if machine["load_before"] > machine["cores"] / 2:
        notes.append(
            f"The machine was busy with other work (load {machine['load_before']}): latencies, "
            "hits and imports of this run are noise. Entries, counts and processor times hold."
        )
    return {
        "schema": SCHEMA,
        "commit": hardware.commit(),
        "quick": quick,
        "machine": machine,
        "place": {"platform": place.platform, "devices": place.devices, "found": found},
        "versions": versions,
        "notes": notes,
    }


def _report(step: Step, kit: Kit, run: dict, out: Path) -> list[str]:
    """Computes and draws the figures. Returns what is wrong with entries and counters."""
    log = LOGS / "bench-report.log"
    with step(f"Write to {out}"), refusing_os_errors(f"write to {out}"):
        results = (out / "results.json").resolve()  # the program runs elsewhere
        results.write_text(json.dumps(run) + "\n")
        with log.open("wb") as output:
            status = subprocess.run(
                [str(kit.reckoner), str(BENCHMARKS / "report.py"), str(results)],
                cwd=LOGS,
                env=clean_environment() | {"MPLBACKEND": "agg"},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        if status != 0:
            raise Refusal(f"cannot compute the figures of {results}: {last_line(log)}")
        return json.loads(results.read_text())["wrong"]


def _judge(wrong: list[str]) -> int:
    for line in wrong:
        print(f"check: {line}")
    if not wrong:
        print("check: all entries and counters are right")
    return 1 if wrong else 0
