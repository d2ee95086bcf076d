"""Runs the tests on one, two and four GPUs in turn, and shows which ran on how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table

from checks.gpu_environments import Environments, gpu_environments
from checks.pytest_runs import Row, report_of, rows_of
from checks.testing import settings
from machine.gpu_node import Node, rehearsal
from machine.pythons import Interpreter, clean_environment
from paths import ROOT
from progress import results, steps
from refusal import refusing_os_errors

COUNTS = (1, 2, 4)  # no mesh in the tests has more
_ON_ALL, _IN_TWO_PROCESSES = "tests/gpu_test.py", "tests/gpu_distributed_test.py"
_PROCESSES = 2
_TABLE = ROOT / "dist" / "gpu-tests.md"
_PROPERTIES = ("-o", "junit_family=xunit1")  # the report format in which a test may add properties


class Ran(NamedTuple):
    """The results of one module on this number of GPUs."""

    module: str
    gpus: int
    rows: list[Row] | None  # None if pytest ended without a report


def test_on_gpus(
    node: Node,
    version: str,
    python: Interpreter,
    pytest_arguments: Sequence[str],
    finished: Path | None,
) -> int:
    """Runs the tests, prints and writes the table, and returns the exit status.

    Raises:
      Refusal: what the tests need could not be installed or built, or the table could not be
        written.
    """
    with steps() as step:
        made = gpu_environments(step, node, version, python, finished)
    ran = list(_runs(node, made, pytest_arguments))
    title = f"{node.title}, jax {made.version}{rehearsal(_device(ran))}"
    show(title, ran)
    write(title, ran)
    return judge(ran)


def _runs(node: Node, made: Environments, arguments: Sequence[str]) -> Iterator[Ran]:
    plan = [(_ON_ALL, count) for count in COUNTS if count <= len(node.gpus)]
    if len(node.gpus) >= _PROCESSES:
        plan.append((_IN_TWO_PROCESSES, _PROCESSES))
    for module, count in plan:
        print(f"{module}, on {count}:", flush=True)
        of_tests = settings(made.stock, made.stock_wheel, made.wheel) | {"PJIT_GPUS": str(count)}
        environment = clean_environment() | of_tests | node.settings(count)
        report = report_of(made.ours, [*_PROPERTIES, *arguments, module], ROOT, environment)
        yield Ran(module, count, None if report is None else rows_of(report))


def _device(ran: Sequence[Ran]) -> str:
    """The kind of the devices, in their own words."""
    return next((row.device for each in ran for row in each.rows or () if row.device), "")


def lines(ran: Sequence[Ran]) -> list[list[str]]:
    """The table, as rows of cells. The first row has the numbers of GPUs."""
    counts: dict[str, Counter[tuple[int, str]]] = {}
    for each in ran:
        for row in each.rows or ():
            # A test that needs more GPUs was skipped, and names no number.
            counts.setdefault(row.test, Counter())[row.gpus or each.gpus, row.kind] += 1
    columns = sorted({number for counter in counts.values() for number, _ in counter})
    return [
        [
            "passed / failed / not run",
            *(f"on {number} GPU{'s'[: number > 1]}" for number in columns),
        ],
        *(
            [test, *(_cell(counter, number) for number in columns)]
            for test, counter in counts.items()
        ),
    ]


def _cell(counter: Counter[tuple[int, str]], number: int) -> str:
    cell = [counter[number, kind] for kind in ("passed", "failed", "skipped")]
    return " / ".join(map(str, cell)) if any(cell) else ""


def show(title: str, ran: Sequence[Ran]) -> None:
    """Prints the table."""
    head, *rest = lines(ran)
    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rest:
        table.add_row(*row)
    console = results()
    console.print(title, highlight=False, markup=False)
    console.print(table, highlight=False, markup=False)


def write(title: str, ran: Sequence[Ran]) -> None:
    """Writes the table as Markdown, with the failures and the reasons of the skips below it.

    Raises:
      Refusal: it cannot be written.
    """
    head, *rest = lines(ran)
    text = [
        title,
        "",
        *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rest)),
        "",
    ]
    rows = [row for each in ran for row in each.rows or ()]
    text += [f"* {row.name}: {row.reason}" for row in rows if row.kind == "failed"]
    reasons = Counter(row.reason for row in rows if row.kind == "skipped")
    text += [f"* {number} tests not run: {reason}" for reason, number in reasons.items()]
    with refusing_os_errors(f"write {_TABLE}"):
        _TABLE.parent.mkdir(parents=True, exist_ok=True)
        _TABLE.write_text("\n".join(text) + "\n")
    print(f"The table, with the failures and why some tests did not run, is in {_TABLE}")


def judge(ran: Sequence[Ran]) -> int:
    """Prints what went wrong, and returns the exit status."""
    broken = [each for each in ran if each.rows is None]
    for each in broken:
        print(f"{each.module}, on {each.gpus}: pytest ended without a report")
    kinds = Counter(row.kind for each in ran for row in each.rows or ())
    print(f"{kinds['passed']} passed, {kinds['failed']} failed, {kinds['skipped']} skipped")
    return 0 if kinds["passed"] and not kinds["failed"] and not broken else 1
