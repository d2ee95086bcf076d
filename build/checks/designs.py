"""Compares several designs of the fix on the same programs, on one release."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from machine.pythons import Interpreter, clean_environment
from markdown import table
from pages import figures
from paths import ROOT
from progress import Step, steps
from refusal import Refusal
from wheels import products

TESTS = ROOT / "tests"
GROUPS = ("routes", "placements", "pairs", "plain", "random")


class Design(NamedTuple):
    name: str
    python: Path
    simulated: bool = False
    padded: bool = False


def designs(version: str, python: Interpreter) -> int:
    """Prints and records how many programs of each group are wrong with each design.

    Raises:
      Refusal: something could not be built, or a program failed.
    """
    with steps() as step:
        source = products.fetched(step, version, python.target)
        wheel = products.our_wheel(step, source, python)
        stock = products.jax_environment(step, "stock", source, python)
        ours = products.jax_environment(step, "ours", wheel, python)
        rows = [_row(step, design) for design in _designs(version, stock, ours)]
    figures.record(
        f"designs-{version}",
        f"python3 build/build.py designs --jaxlib {version}",
        exact={"release": version, "groups": GROUPS, "wrong": dict(rows)},
    )
    print(table([version, *GROUPS], [[name, *counts] for name, counts in rows]))
    return 0


def _designs(version: str, stock: Path, ours: Path) -> list[Design]:
    release = tuple(int(number) for number in version.split(".")[:2])
    converts = release >= (0, 11)
    return [
        Design("stock, with JAX's conversion" if converts else "stock", stock),
        *([Design("and padded to full rank", stock, padded=True)] if converts else []),
        Design("the wheel's spelling", ours),
        *(
            [Design("this comparison, simulated", stock, simulated=True)]
            if release >= (0, 10)
            else []
        ),
    ]


def _row(step: Step, design: Design) -> tuple[str, list[str]]:
    return design.name, [_wrong(step, design, group) for group in GROUPS]


def _wrong(step: Step, design: Design, group: str) -> str:
    """How many programs are wrong, such as `2 of 36`."""
    simulation = [str(TESTS / "simulated_comparison.py")] if design.simulated else []
    program = [str(TESTS / "comparison_programs.py"), "padded" if design.padded else "as_is", group]
    settings = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": str(TESTS),
    }
    with step(f"{design.name}, {group}"):
        done = subprocess.run(
            [str(design.python), *simulation, *program],
            env=clean_environment() | settings,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise Refusal(f"{design.name}, {group}: {done.stderr.strip().splitlines()[-1]}")
    results = json.loads(done.stdout)
    wrong = [name for name, (entries, right) in results.items() if entries != right]
    return f"{len(wrong)} of {len(results)}"
