"""The command line's arguments that several subcommands take. Standard library only."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from paths import ROOT

JAXLIB = "0.10.2"


def python(parser: argparse._ActionsContainer) -> None:
    """`--python`."""
    parser.add_argument(
        "--python", default=sys.executable, help="the Python to build for (this one)"
    )


def jaxlib(parser: argparse._ActionsContainer) -> None:
    """`--jaxlib`."""
    parser.add_argument("--jaxlib", default=JAXLIB, metavar="VERSION", help=f"({JAXLIB})")


def finished_wheel(parser: argparse._ActionsContainer) -> None:
    """`--wheel`, as `finished`: a command that is given one builds nothing."""
    parser.add_argument(
        "--wheel",
        dest="finished",
        type=path,
        metavar="FILE",
        help="a finished wheel of ours: nothing is built, and only Python and pip are needed",
    )


def out(parser: argparse._ActionsContainer, default: Path = ROOT / "dist") -> None:
    """`--out`."""
    shown = default.relative_to(ROOT)
    parser.add_argument("--out", type=path, default=default, metavar="DIR", help=f"({shown})")


def jax_source(parser: argparse._ActionsContainer) -> None:
    """`--jax-source`."""
    parser.add_argument("--jax-source", type=path, required=True, metavar="DIR")


def path(text: str) -> Path:
    """A path that is given. An empty one is a mistake, and would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a file or a folder")
    return Path(text)
