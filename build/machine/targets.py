"""What an extension is built for: a CPython and a machine. Standard library only."""

from __future__ import annotations

import re
from typing import NamedTuple

from refusal import Refusal

MACHINES = ("x86_64", "aarch64")

_TAG = re.compile(r"cp3(\d{1,2})(t?)")


class Target(NamedTuple):
    """A CPython on Linux that jaxlib has wheels for, installed here or not."""

    version: tuple[int, int]
    free_threaded: bool
    machine: str

    @property
    def name(self) -> str:
        """The wheel tag of this Python, such as cp311."""
        return f"cp{self.version[0]}{self.version[1]}"

    @property
    def abi(self) -> str:
        """The wheel tag of its binary interface, such as cp311 or cp314t."""
        return self.name + ("t" if self.free_threaded else "")

    @property
    def tag(self) -> str:
        """The first two parts of a wheel's tag, such as cp314-cp314t."""
        return f"{self.name}-{self.abi}"

    @property
    def label(self) -> str:
        """A name for folders and for people, such as cp311-x86_64."""
        return f"{self.abi}-{self.machine}"


def is_tag(text: str) -> bool:
    """Whether the text has the form of a Python's tag, such as cp313 or cp314t."""
    return _TAG.fullmatch(text) is not None


def target(abi: str, machine: str) -> Target:
    """The target that a tag such as cp313 or cp314t names.

    Raises:
      Refusal: it is not a tag.
    """
    match = _TAG.fullmatch(abi)
    if match is None:
        raise Refusal(
            f"--python {abi}: is not the tag of a Python; give one such as cp313 or cp314t"
        )
    return Target((3, int(match[1])), bool(match[2]), machine)
