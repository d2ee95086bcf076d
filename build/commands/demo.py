"""Builds our wheel, and shows a stock jaxlib and ours side by side."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter

HELP = "build, and show stock jaxlib and ours side by side"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    which = parser.add_mutually_exclusive_group()
    arguments.jaxlib(which)
    arguments.finished_wheel(which)
    arguments.find_links(parser)
    arguments.platform(parser)


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from checks.demo import demo

    node = arguments.gpu_node(options, python)
    return demo(options.jaxlib, python, options.finished, node)
