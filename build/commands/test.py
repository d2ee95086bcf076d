"""Runs the C++ and the Python tests, of one release or of several."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter

HELP = "run the C++ and the Python tests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    which = parser.add_mutually_exclusive_group()
    arguments.jaxlib(which)
    which.add_argument(
        "--releases",
        metavar="VERSION,...",
        help="several: versions, newest, all, or others, which is all but the default",
    )
    arguments.finished_wheel(which)
    parser.add_argument("pytest", nargs="*", metavar="-- PYTEST ARGUMENT", default=[])


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from checks.releases import test_release, test_releases

    if options.releases is not None:
        return test_releases(options.releases.split(","), python, options.pytest)
    return test_release(options.jaxlib, python, options.pytest, options.finished)
