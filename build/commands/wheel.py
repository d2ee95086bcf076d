"""Makes our wheel from a stock jaxlib wheel, and prints its path."""

from __future__ import annotations

import argparse
import sys

import arguments
from machine import targets
from machine.pythons import Interpreter, examine
from machine.targets import MACHINES, Target

HELP = "make our wheel from a stock jaxlib wheel"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(python=sys.executable)
    parser.add_argument(
        "--python",
        dest="wanted",
        metavar="PYTHON",
        help="the Python to build for, or a tag such as cp314t if it is not installed (this one)",
    )
    parser.add_argument(
        "--machine", choices=MACHINES, help="(that of the stock wheel, or this one)"
    )
    source = parser.add_mutually_exclusive_group()
    arguments.jaxlib(source)
    source.add_argument(
        "--wheel", type=arguments.path, metavar="FILE", help="a stock wheel that you have already"
    )
    arguments.out(parser)


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from progress import steps
    from wheels import products

    wanted = target(options, python)
    with steps() as step:
        source = options.wheel or products.fetched(step, options.jaxlib, wanted)
        wheel = products.portable_wheel(step, source, wanted, options.out)
    print(wheel)
    return 0


def target(options: argparse.Namespace, python: Interpreter) -> Target:
    """What to build for: what the options say, or else what the stock wheel is for."""
    from wheels.stock_wheel import target_of

    default = target_of(options.wheel) if options.wheel else python.target
    machine = options.machine or default.machine
    if options.wanted is None:
        return default._replace(machine=machine)
    if targets.is_tag(options.wanted):
        return targets.target(options.wanted, machine)
    asked = examine(options.wanted).target
    return asked._replace(machine=options.machine or asked.machine)
