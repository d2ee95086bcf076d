"""Runs the C++ and the Python tests, of one release or of several."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter
from refusal import Refusal

HELP = "run the C++ and the Python tests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    which = parser.add_mutually_exclusive_group()
    arguments.jaxlib(which)
    which.add_argument(
        "--releases",
        metavar="VERSION,...",
        help="several: versions, newest, all, others (all but the default)",
    )
    arguments.finished_wheel(which)
    arguments.find_links(parser)
    arguments.platform(parser)
    parser.add_argument("pytest", nargs="*", metavar="-- PYTEST ARGUMENT", default=[])


def run(options: argparse.Namespace, python: Interpreter) -> int:
    if node := arguments.gpu_node(options, python):
        if options.releases is not None:
            raise Refusal("--releases: runs on the CPU only; for GPUs, give --jaxlib or --wheel")
        from checks.gpu_testing import test_on_gpus

        return test_on_gpus(node, options.jaxlib, python, options.pytest, options.finished)
    from checks.releases import test_release, test_releases

    if options.releases is not None:
        return test_releases(options.releases.split(","), python, options.pytest)
    return test_release(options.jaxlib, python, options.pytest, options.finished)
