"""Checks a wheel of ours that was made before, for commands that take `--wheel`."""

from __future__ import annotations

from pathlib import Path

from machine.targets import Target
from progress import Report, advancing, nothing
from refusal import Refusal
from wheels.seam import PJIT
from wheels.stock_wheel import check_record, chunks, is_ours, named, opened


def check(path: Path, target: Target, report: Report = nothing) -> str:
    """Checks that a finished wheel is ours, for this Python, and complete.

    Returns:
      The version of the stock jaxlib that it was made from.

    Raises:
      Refusal: something is wrong with it.
    """
    wheel = named(path, target)
    if not is_ours(wheel.version):
        raise Refusal(
            f"{path}: is a stock jaxlib; give a wheel of ours: build.py wheel --wheel makes it"
        )
    with opened(path) as file:
        if PJIT not in file.namelist():
            raise Refusal(f"{path}: has no {PJIT}, though its version says so; get it again")
        check_record(file, path)
        advance = advancing(report, sum(info.file_size for info in file.infolist()))
        for info in file.infolist():
            for _ in chunks(file, info, advance):
                pass
    return wheel.version.public
