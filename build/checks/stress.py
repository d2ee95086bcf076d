"""Runs the load of tests/stress.py on a stock jaxlib and on ours, one after the other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from checks.testing import REQUIREMENTS
from machine.pythons import Interpreter, clean_environment
from pages import figures, stress
from paths import ROOT, STRESS
from progress import Step, steps
from refusal import Refusal
from wheels import products

_OFF = {"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "0"}
_DEVICES = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def run_stress(version: str, python: Interpreter) -> int:
    """Runs both programs on each side, and returns the exit status: 1 if something is wrong.

    Raises:
      Refusal: something could not be built or run.
    """
    with steps() as step:
        source = products.fetched(step, version, python.target)
        wheel = products.our_wheel(step, source, python)
        stock = products.jax_environment(step, "stock", source, python)
        ours = products.jax_environment(step, "test", wheel, python, REQUIREMENTS)
        runs = [
            ("threads", "stock", stock, {}),
            ("threads", "ours", ours, {}),
            ("functions", "stock", stock, {}),
            ("functions", "ours, off", ours, _OFF),
            ("functions", "ours", ours, {}),
        ]
        results = [_run(step, *run) for run in runs]
    command = f"python3 build/build.py stress --jaxlib {version}"
    figures.record(f"stress-{version}", command, measured={"runs": results})
    print(stress.tables(results))
    wrong = [each for each in results if not each["ok"]]
    for each in wrong:
        print(f"{each['program']} on {each['jaxlib']} jaxlib: something is wrong: {each}")
    return 1 if wrong else 0


def _run(step: Step, program: str, side: str, python: Path, settings: dict[str, str]) -> dict:
    with step(f"{program}, {side}"):
        done = subprocess.run(
            [str(python), str(STRESS), program, "--json"],
            cwd=ROOT,
            env=clean_environment() | _DEVICES | settings,
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Refusal(f"{STRESS.name} {program} failed on {side} jaxlib: {last}") from error
