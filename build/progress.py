"""Shows which long steps run, and how far they are: a live display on a terminal, lines elsewhere.

It goes to standard error, so that standard output has only results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Report = Callable[[float], None]  # takes the fraction that is done, 0 to 1
Step = Callable[[str], AbstractContextManager[Report]]

_WIDTH = 160  # in a file


def results() -> Console:
    """The console for tables of results: standard output, and wide enough if that is a file."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def nothing(part: float) -> None:
    """A Report that does nothing."""


def advancing(report: Report, total: int) -> Callable[[int], None]:
    """Returns a function that takes each further amount, and reports the fraction of the total."""
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        report(done / total)

    return advance


@contextmanager
def steps() -> Iterator[Step]:
    """Opens the display, and yields a function that opens a step, from any thread."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    live = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not live) as display:
        yield lambda label: _step(display, label)


@contextmanager
def _step(display: Progress, label: str) -> Iterator[Report]:
    console, start = display.console, time.monotonic()
    if not console.is_terminal:
        console.print(f"{label} ...", highlight=False, soft_wrap=True)
    task = display.add_task(label, total=None)
    try:
        yield lambda part: display.update(task, total=1.0, completed=part)
    finally:
        display.remove_task(task)
    seconds = time.monotonic() - start
    console.print(f"{label}: done, {seconds:.1f} s", highlight=False, soft_wrap=True)
