"""Makes our wheel of a stock jaxlib wheel, and prints its path."""

from __future__ import annotations

import argparse
import sys

import arguments
from machine import targets
from machine.pythons import Interpreter, examine
from machine.targets import MACHINES, Target

HELP = "make our wheel of a stock jaxlib wheel"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(python=sys.executable)
    parser.add_argument(
        "--python",
        dest="wanted",
        metavar="PYTHON",
        help="the Python to build for, or a tag such as cp314t for one that is not here (this one)",
    )
    parser.add_argument("--machine", choices=MACHINES, help="(this one, or the stock wheel's)")
    source = parser.add_mutually_exclusive_group()
    arguments.jaxlib(source)
    source.add_argument(
        "--wheel", type=arguments.path, metavar="FILE", help="a stock wheel that is here already"
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
    """What to build for: what is asked for, or else what the stock wheel is for."""
    from wheels.stock_wheel import target_of

    default = target_of(options.wheel) if options.wheel else python.target
    machine = options.machine or default.machine
    if options.wanted is None:
        return default._replace(machine=machine)
    if targets.is_tag(options.wanted):
        return targets.target(options.wanted, machine)
    asked = examine(options.wanted).target
    return asked._replace(machine=options.machine or asked.machine)
