"""Runs the random programs of tests/random_programs.py on several releases, and counts the worse.

A program runs with the rule off, as stock, and on, in one process. It is worse if it has more cache
entries than stock's after any call.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from checks.pytest_runs import in_parallel
from checks.releases import releases
from checks.testing import REQUIREMENTS
from machine.pythons import Interpreter, clean_environment
from pages import figures
from pages import promise as page
from paths import LOGS, ROOT
from progress import Step, steps
from refusal import Refusal
from wheels import products

_PROGRAM = ROOT / "tests" / "random_programs.py"


def promise(names: Sequence[str], programs: int, python: Interpreter) -> int:
    """Prints what came of them, and returns the exit status: 1 where the promise is broken.

    Raises:
      Refusal: a release could not be had, or its programs did not end.
    """
    with steps() as step:
        wanted, _ = releases(step, names, python)
        runs = []
        for each in wanted:
            stock = products.fetched(step, each.version, each.python.target)
            ours = products.our_wheel(step, stock, each.python)
            inside = products.jax_environment(step, "test", ours, each.python, REQUIREMENTS)
            # The wiring may change from call to call: stock spells outputs alike since jax 0.11.
            kinds = ["steady", "changing"] if _spells_alike(each.version) else ["steady"]
            runs += [(each.version, kind, inside) for kind in kinds]
        tallies = in_parallel(lambda run: _tally(step, *run, programs), runs)
    command = f"python3 build/build.py promise --releases {','.join(names)} --programs {programs}"
    figures.record("promise", command, exact={"tallies": tallies})
    print(page.tables(tallies))
    return 1 if any(tally["worse"] or tally["other_values"] for tally in tallies) else 0


def _spells_alike(version: str) -> bool:
    return tuple(int(number) for number in version.split(".")[:2]) >= (0, 11)


def _tally(step: Step, version: str, kind: str, python: Path, programs: int) -> dict:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"promise-{version}-{kind}.log"
    options = ["--programs", str(programs), *(["--changing"] if kind == "changing" else [])]
    with step(f"{programs:,} {kind} programs on {version}"), log.open("w") as errors:
        done = subprocess.run(
            [str(python), str(_PROGRAM), *options],
            cwd=ROOT,
            env=clean_environment() | {"JAXLIB_PJIT_STRICT": "1"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
        )
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise Refusal(f"{_PROGRAM.name} failed on jaxlib {version}; {log} has why") from error
