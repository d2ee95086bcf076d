"""Figures of `build.py demo`, for the README."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from packaging.version import Version

from arguments import JAXLIB
from markdown import table
from pages import figures

_COMMAND = "python3 build/build.py demo"
_Rows = list[dict]


def report() -> str:
    """The report's program: a row for each case, or two if a cold and a warm run differ."""
    rows = [
        [stock["case"], _run(stock), *_pair(stock, ours, _entries), *_pair(stock, ours, _spec)]
        for stock, ours in _pairs(_kept(), 1)
    ]
    head = ["program", "run", "entries, stock", "fixed", "fed-back spec, stock", "fixed"]
    return table(head, list(_merged(rows)))


def kind() -> str:
    """The other spellings, on each stock release that has figures, and with the fix."""
    releases = sorted(_releases(), key=lambda each: Version(each["exact"]["jax"]))
    columns = [[_entries(row) for row in _rows(each, "stock", 2)] for each in releases]
    columns.append([_entries(row) for row in _rows(_kept(), "ours", 2)])
    cases = [row["case"] for row in _rows(_kept(), "ours", 2)]
    head = ["program", *(f"stock {each['exact']['jax']}" for each in releases), "fixed"]
    return table(head, [list(row) for row in zip(cases, *columns)])


def cost() -> str:
    """The cost of the slow call in the first program, in words."""
    times = _kept()["measured"]["slow / steady ms"]
    stock, ours = (times[side][0].split(" / ") for side in ("stock", "ours"))
    return (
        f"In the first row, the slowest call after the first takes {stock[0]} ms with stock and "
        f"{ours[0]} ms with the fix, a steady one {stock[1]} and {ours[1]} ms."
    )


def seconds() -> str:
    """How long the command takes the first time and the next, in words."""
    times = [figures.kept(f"demo-{which}") for which in ("first", "again")]
    if None in times:
        return "How long it takes has not been measured at a commit of this history."
    first, again = (round(each["measured"]["seconds"]) for each in times)
    cores = times[0]["machine"]["cores"]
    return (
        f"On {cores} cores the first `demo` takes {first} seconds where Debian's packages are "
        f"there, and the next one {again}."
    )


def _kept() -> figures.Figures:
    return next(each for each in _releases() if each["exact"]["jax"] == JAXLIB)


def _releases() -> list[figures.Figures]:
    return [each for each in figures.all_kept("demo-") if each["exact"]]


def _rows(of: figures.Figures, side: str, section: int) -> _Rows:
    return [row for row in of["exact"][side] if row["section"] == section]


def _pairs(of: figures.Figures, section: int) -> Iterator[tuple[dict, dict]]:
    return zip(_rows(of, "stock", section), _rows(of, "ours", section))


def _pair(stock: dict, ours: dict, cell: Callable[[dict], str]) -> list[str]:
    return [cell(stock), cell(ours)]


def _entries(row: dict) -> str:
    shown = " ".join(map(str, row["entries"]))
    if row["outcome"] != "ok":
        return f"{shown}, **{row['outcome']}**"
    return shown if row["entries"] == row["goal"] else f"**{shown}**"


def _spec(row: dict) -> str:
    return f"`{row['spec']}`"


def _run(row: dict) -> str:
    return row["run"] or ""


def _merged(rows: list[list[str]]) -> Iterator[list[str]]:
    """The rows, where a cold and a warm run with the same cells share one."""
    waiting: list[str] = []
    for row in rows:
        if waiting and [waiting[0], *waiting[2:]] == [row[0], *row[2:]]:
            waiting = [row[0], f"{waiting[1]}, {row[1]}", *row[2:]]
            continue
        if waiting:
            yield waiting
        waiting = row
    yield waiting
