"""Makes our wheel of a stock jaxlib wheel, and prints its path."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter

HELP = "make our wheel of a stock jaxlib wheel"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    source = parser.add_mutually_exclusive_group()
    arguments.jaxlib(source)
    source.add_argument(
        "--wheel", type=arguments.path, metavar="FILE", help="a wheel that is here already"
    )
    arguments.out(parser)


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from progress import steps
    from wheels import products

    with steps() as step:
        source = options.wheel or products.fetched(step, options.jaxlib, python)
        wheel = products.our_wheel(step, source, python, options.out)
    print(wheel)
    return 0
