"""Runs JAX's own tests on a stock jaxlib and on ours, and shows what differs."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter

HELP = "run JAX's own tests on stock and ours"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    arguments.jaxlib(parser)
    arguments.jax_source(parser)
    parser.add_argument(
        "--simulate-comparison",
        action="store_true",
        help="compare stock with stock and the simulated comparison (0.10 and later)",
    )
    parser.add_argument(
        "--tests",
        metavar="NAME,...",
        help="which test files (those that docs/reliability.md lists)",
    )


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from checks.conformance import NAMES, conformance

    names = options.tests.split(",") if options.tests else NAMES
    return conformance(
        options.jax_source,
        options.jaxlib,
        names,
        python,
        simulate_comparison=options.simulate_comparison,
    )
