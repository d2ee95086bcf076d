"""Command-line arguments that several subcommands share. Standard library only."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from machine import targets
from machine.gpu_node import CUDAS, Node, examine
from machine.pythons import Interpreter
from paths import ROOT
from refusal import Refusal

JAXLIB = "0.10.2"

_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9.]*[a-z0-9])?")


def python(parser: argparse._ActionsContainer) -> None:
    """`--python`."""
    parser.add_argument(
        "--python", default=sys.executable, help="the Python to build for (this one)"
    )


def jaxlib(parser: argparse._ActionsContainer) -> None:
    """`--jaxlib`."""
    parser.add_argument(
        "--jaxlib", type=version, default=JAXLIB, metavar="VERSION", help=f"({JAXLIB})"
    )


def finished_wheel(parser: argparse._ActionsContainer) -> None:
    """`--wheel`, stored as `finished`: with it, a command builds nothing."""
    parser.add_argument(
        "--wheel",
        dest="finished",
        type=path,
        metavar="FILE",
        help="a finished wheel of ours: nothing is built, and only Python and pip are needed",
    )


def find_links(parser: argparse._ActionsContainer) -> None:
    """`--find-links`: build.py installs only from that folder, for a machine without network."""
    parser.add_argument(
        "--find-links",
        type=path,
        metavar="DIR",
        help="install from the wheels in this folder, without a network",
    )


def platform(parser: argparse._ActionsContainer) -> None:
    """`--platform`, `--devices` and `--cuda`, which `gpu_node` reads."""
    parser.add_argument("--platform", choices=("cpu", "gpu"), default="cpu", help="(cpu)")
    parser.add_argument(
        "--devices", type=int, metavar="N", help="how many to use (all GPUs; bench: 2 CPU devices)"
    )
    parser.add_argument(
        "--cuda", type=int, choices=CUDAS, help="(13 where --python has that plugin, else 12)"
    )


def gpu_node(
    options: argparse.Namespace, python: Interpreter, *, takes_cpus: bool = False
) -> Node | None:
    """The GPUs to run on, or None for the CPU.

    Args:
      takes_cpus: whether `--devices` may count CPU devices, too.

    Raises:
      Refusal: no GPU can be used in that way, or an option needs `--platform gpu`.
    """
    if options.platform == "gpu":
        return examine(python, options.devices, options.cuda)
    of_gpus = {"--cuda": options.cuda, "--devices": None if takes_cpus else options.devices}
    for name, value in of_gpus.items():
        if value is not None:
            raise Refusal(f"{name} {value}: needs --platform gpu; add that, or leave {name} out")
    return None


def out(parser: argparse._ActionsContainer, default: Path = ROOT / "dist") -> None:
    """`--out`."""
    shown = default.relative_to(ROOT)
    parser.add_argument("--out", type=path, default=default, metavar="DIR", help=f"({shown})")


def jax_source(parser: argparse._ActionsContainer) -> None:
    """`--jax-source`."""
    parser.add_argument("--jax-source", type=path, required=True, metavar="DIR")


def path(text: str) -> Path:
    """A path. An empty one is refused: it would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a file or a folder")
    return Path(text)


def version(text: str) -> str:
    """The version of a release, checked before anything is installed."""
    if not is_version(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version; give one such as {JAXLIB}")
    return text


def tag(text: str) -> str:
    """The tag of a Python, such as cp313t, checked before anything is installed."""
    if not targets.is_tag(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the tag of a Python; give one such as cp313t"
        )
    return text


def is_version(text: str) -> bool:
    """Whether the text has the form of a version."""
    return _VERSION.fullmatch(text) is not None
