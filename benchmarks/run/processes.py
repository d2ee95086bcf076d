"""What takes a process a sample, or a program of its own: measurements 4 and 5, the rule alone
under Google Benchmark, and instruction counts.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from machine.pythons import Interpreter
from paths import BENCHMARKS, LOGS, STATE
from progress import Report, Step, advancing
from refusal import Refusal
from run.plan import Kit, Place, Plan
from run.workers import last_line, settings
from wheels import stock_wheel
from wheels.extensions import compile_benchmark, compile_extensions, compile_from_nothing
from wheels.repack import repack

# Always on the CPU: none of this uses a GPU.
_PLACE = Place(2)
_ONE_DEVICE = Place(1)
_NAMES = {"stock": "stock", "ours": "fixed", "newest": "JAX's own fix"}
_THREAD_TOTALS = re.compile(r"^desc: Trigger: dump (.+)/(.+)/(\d+)/(.+)/(\d+)$", re.MULTILINE)
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def samples(
    step: Step, kit: Kit, python: Interpreter, plan: Plan, *, builds: bool
) -> Iterator[dict]:
    """All samples, each with the name of what was measured.

    Args:
      builds: whether to include those that need a compiler or valgrind.

    Raises:
      Refusal: a program failed.
    """
    with step("Import jax, and make functions") as report:
        yield from _imports_and_functions(kit, plan, report)
    if not builds:
        return
    with step("Run Google Benchmark on the rule alone"):
        yield from _rule_alone(kit, python, plan)
    if plan.instruction_sizes:
        with step("Count instructions with callgrind"):
            yield from _instructions(kit, plan)
    with step("Build the wheel from nothing"):
        yield _build(kit, python)


def _run(
    name: str, command: Sequence[str | Path], place: Place, more: dict[str, str] | None = None
) -> str:
    """What a program printed.

    Raises:
      Refusal: it failed.
    """
    log = LOGS / f"bench-{name}.log"
    with log.open("wb") as errors:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=LOGS,
            env=settings(place) | (more or {}),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise Refusal(f"the benchmark failed on {name}: {last_line(log)}")
    return done.stdout


def _imports_and_functions(kit: Kit, plan: Plan, report: Report) -> Iterator[dict]:
    advance = advancing(report, plan.process_repeats * len(kit.pythons))
    for repeat in range(plan.process_repeats):
        names = list(kit.pythons)
        for name in names if repeat % 2 == 0 else names[::-1]:
            made = json.loads(_run(name, [kit.pythons[name], BENCHMARKS / "functions.py"], _PLACE))
            what = {"measure": "functions", "variant": _NAMES[name], "repeat": repeat}
            yield what | made | {"import_s": _import_s(kit, name)}
            advance(1)


def _import_s(kit: Kit, name: str) -> float:
    """The seconds that `import jax` takes in a process of its own, by pyperf, with files cached."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "import.json"
        once = ["--processes=1", "--values=1", "--warmups=0", "--loops=1", "--quiet"]
        program = ["--", kit.pythons[name], "-c", "import jax"]
        pyperf = [kit.reckoner, "-m", "pyperf", "command", *once, f"--output={result}", *program]
        _run(f"import-{name}", pyperf, _PLACE)
        (benchmark,) = json.loads(result.read_text())["benchmarks"]
        return benchmark["runs"][-1]["values"][0]


def _rule_alone(kit: Kit, python: Interpreter, plan: Plan) -> Iterator[dict]:
    module = compile_benchmark(python)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "rule.json"
        arguments = [module, result, plan.rule_seconds, *plan.miss_sizes]
        _run("rule", [kit.pythons["stock"], BENCHMARKS / "rule.py", *arguments], _PLACE)
        for each in json.loads(result.read_text())["benchmarks"]:
            if each["run_type"] == "iteration":
                kind, _, size = each["run_name"].partition("/")
                what = {"measure": "rule", "case": kind, "n": int(size.partition("/")[0])}
                yield what | {"rule_ns": each["cpu_time"]}


def _instructions(kit: Kit, plan: Plan) -> Iterator[dict]:
    # Hits on one device: with more, the threads that execute disturb the calling thread.
    jobs = [
        ("stock", "hits", _ONE_DEVICE),
        ("ours", "hits", _ONE_DEVICE),
        ("ours", "misses", _PLACE),
    ]
    # Counts do not depend on the machine's other work.
    with ThreadPoolExecutor(len(jobs)) as pool:
        for counts in pool.map(lambda job: _counts(kit, *job, plan.instruction_sizes), jobs):
            yield from counts


def _counts(kit: Kit, name: str, what: str, place: Place, sizes: Sequence[int]) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        callgrind = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--separate-threads=yes",
            f"--callgrind-out-file={folder}/counts",
        ]
        program = [kit.pythons[name], BENCHMARKS / "instructions.py", what, *sizes]
        _run(f"callgrind-{name}-{what}", [*callgrind, *program], place, {"PYTHONHASHSEED": "0"})
        # The dumps of the calling thread, oldest first.
        files = sorted(Path(folder).glob("counts.*-01"), key=lambda path: int(path.suffix[1:-3]))
        dumps = [path.read_text() for path in files]
    return [sample_of(dump) for dump in dumps if _THREAD_TOTALS.search(dump)]


def sample_of(dump: str) -> dict:
    """The sample in one dump of the calling thread."""
    part, kind, size, variant, calls = _THREAD_TOTALS.search(dump).groups()
    return {
        "measure": "instructions",
        "part": part,
        "case": kind,
        "n": int(size),
        "variant": variant,
        "calls": int(calls),
        "instructions": int(_TOTALS.search(dump).group(1)),
    }


def _build(kit: Kit, python: Interpreter) -> dict:
    """Builds the wheel from scratch, except that nothing is downloaded again."""
    STATE.mkdir(parents=True, exist_ok=True)
    extensions = compile_extensions(python)
    with tempfile.TemporaryDirectory(dir=STATE) as folder:
        start = time.perf_counter()
        compile_from_nothing(python, Path(folder) / "bazel")
        compiled = time.perf_counter()
        stock = stock_wheel.check(kit.stock_wheel, python.target)
        wheel = repack(stock, extensions, python.target, Path(folder))
        packed = time.perf_counter()
        return {
            "measure": "build",
            "compile_s": compiled - start,
            "pack_s": packed - compiled,
            "wheel_bytes": wheel.stat().st_size,
            "stock_bytes": kit.stock_wheel.stat().st_size,
        }
