"""Measures stock, ours, JAX's own fix and the workaround, or compares two results."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter
from paths import ROOT

HELP = "measure stock, ours, JAX's fix and the workaround"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    which = parser.add_mutually_exclusive_group()
    arguments.jaxlib(which)
    arguments.finished_wheel(which)
    arguments.find_links(parser)
    arguments.platform(parser)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and samples")
    parser.add_argument(
        "--check", action="store_true", help="fail if a program has an entry too many"
    )
    arguments.out(parser, ROOT / "dist" / "benchmarks")
    parser.add_argument(
        "--compare",
        nargs=2,
        type=arguments.path,
        metavar="JSON",
        help="show two results side by side instead",
    )


def system_packages(options: argparse.Namespace) -> set[str]:
    """The Debian packages that this command needs and the others do not."""
    needs_none = options.compare or options.finished or options.platform == "gpu"
    return set() if needs_none else {"libbenchmark-dev", "valgrind"}


def run(options: argparse.Namespace, python: Interpreter) -> int:
    if options.compare:
        from run.compare import compare

        return compare(*options.compare)
    from run.bench import bench

    return bench(
        options.jaxlib,
        python,
        options.out,
        finished=options.finished,
        node=arguments.gpu_node(options, python, takes_cpus=True),
        devices=options.devices,
        quick=options.quick,
        check=options.check,
    )
