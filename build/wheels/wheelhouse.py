"""Makes our wheels of several jaxlib releases, Pythons and machines, and an index of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table

from machine.pythons import here_for
from machine.targets import Target
from progress import Step, results, steps
from refusal import Refusal, refusing_os_errors
from wheels import portable, products
from wheels.index import write_index


class Row(NamedTuple):
    """The result for one release and one target: a wheel, or why there is none."""

    version: str
    target: Target
    wheel: Path | None
    remark: str


def wheelhouse(versions: Sequence[str], wanted: Sequence[Target], out: Path) -> int:
    """Makes a wheel from each stock wheel that there is, and returns the exit status.

    After an interruption, reuses what was made before.

    Raises:
      Refusal: a release has no wheel for any target, or something could not be built or written.
    """
    with refusing_os_errors(f"write to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    machines = list(dict.fromkeys(target.machine for target in wanted))
    with steps() as step:
        if len(machines) > 1:
            with step(f"Compile libc++ for {' and '.join(machines)}"):
                portable.compile_libraries(machines)
        for version in versions:
            rows += _release(step, version, wanted, out)
        with step(f"Write the index of {out}"):
            write_index(out)
    show(rows)
    print(f"pip install --extra-index-url {(out / 'simple').resolve().as_uri()} jaxlib")
    return 0


def _release(step: Step, version: str, wanted: Sequence[Target], out: Path) -> list[Row]:
    rows = []
    for target in wanted:
        try:
            source = products.fetched(step, version, target)
        except Refusal as refusal:
            rows.append(Row(version, target, None, str(refusal)))
            continue
        wheel = products.portable_wheel(step, source, target, out)
        tried = "tried" if here_for(target) else "built only"
        rows.append(Row(version, target, wheel, tried))
    if not any(row.wheel for row in rows):
        raise Refusal(f"jaxlib {version}, {wanted[0].label}: {rows[0].remark}")
    return rows


def show(rows: Sequence[Row]) -> None:
    """Prints the table of what was made."""
    table = Table("jaxlib", "Python", "machine", "MB", "", "wheel", box=box.SIMPLE_HEAD)
    for row in rows:
        size = f"{row.wheel.stat().st_size / 1e6:.0f}" if row.wheel else ""
        name = row.wheel.name if row.wheel else "no stock wheel"
        remark = row.remark if row.wheel else ""
        table.add_row(row.version, row.target.abi, row.target.machine, size, remark, name)
    results().print(table, highlight=False)
    made = [row.wheel for row in rows if row.wheel]
    total = sum(wheel.stat().st_size for wheel in made) / 1e9
    print(f"{len(made)} wheels, {total:.1f} GB; tried: installed here, and the rule is on")
