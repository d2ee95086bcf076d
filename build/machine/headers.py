"""The headers of a Python to build for, which need not be here. Standard library only."""

from __future__ import annotations

from pathlib import Path

from machine.debian_headers import debian_headers, in_one_folder
from machine.pythons import Interpreter, here
from machine.targets import Target
from refusal import Refusal


def headers(target: Target, given: Interpreter | None = None) -> Path:
    """The folder with that very Python's headers, or with such as serve as well.

    A Python without the GIL has the headers of the one with it and the definition Py_GIL_DISABLED.
    Those of two machines differ in pyconfig.h alone, and not in what an extension sees of it on
    64-bit Linux.

    Args:
      given: a Python to look at first.

    Raises:
      Refusal: there are none here, and Debian has none.
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
