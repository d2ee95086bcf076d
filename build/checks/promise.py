"""Runs the random programs of tests/random_programs.py on several releases.

Each program runs in one process with the rule off, which is stock, and with the rule on. It counts
as worse if it has more cache entries than stock after any call.
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
    """Prints the counts, and returns the exit status: 1 if a program is worse than stock.

    Raises:
      Refusal: a release could not be installed, or its programs failed.
    """
    with steps() as step:
        wanted, _ = releases(step, names, python)
        runs = []
        for each in wanted:
            stock = products.fetched(step, each.version, each.python.target)
            ours = products.our_wheel(step, stock, each.python)
            inside = products.jax_environment(step, "test", ours, each.python, REQUIREMENTS)
            # Programs that feed back other outputs on each call: since jax 0.11, stock spells all
            # outputs alike, so that the promise holds for these, too.
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
