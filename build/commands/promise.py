"""Compares the entries of thousands of random programs with stock's, on several releases."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter

HELP = "compare the entries of random programs with stock's"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    parser.add_argument(
        "--releases",
        metavar="VERSION,...",
        default="0.6.2,0.10.2,newest",
        help="as in the test command (0.6.2,0.10.2,newest)",
    )
    parser.add_argument(
        "--programs", type=int, default=3000, metavar="N", help="on each release (3000)"
    )


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from checks.promise import promise

    return promise(options.releases.split(","), options.programs, python)
