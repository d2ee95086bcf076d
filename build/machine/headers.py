"""Finds the headers of a Python, which need not be installed here. Standard library only."""

from __future__ import annotations

from pathlib import Path

from machine.debian_headers import debian_headers, in_one_folder
from machine.pythons import Interpreter, here
from machine.targets import Target
from refusal import Refusal


def headers(target: Target, given: Interpreter | None = None) -> Path:
    """Returns the folder with that Python's headers, or with those of a Python that do as well.

    A free-threaded Python has the headers of the one with the GIL, and defines Py_GIL_DISABLED.
    The headers of two machines differ only in pyconfig.h, and on 64-bit Linux not in anything that
    an extension uses.

    Args:
      given: a Python to look at first.

    Raises:
      Refusal: no installed Python has them, and Debian does not either.
    """
    candidates = [*([given] if given else []), *here(target.version)]
    same = [each for each in candidates if each.version == target.version and each.has_headers]
    for python in same:
        if python.target == target:
            return in_one_folder(python.include, python.machine)
    with_gil = [each for each in same if not each.free_threaded]
    for python in with_gil:
        if python.machine == target.machine:
            return in_one_folder(python.include, python.machine)
    try:
        return debian_headers(target)
    except Refusal:
        if not with_gil:
            raise
        return in_one_folder(with_gil[0].include, with_gil[0].machine)
