"""Makes an overlay for an installed jaxlib, and prints how to use it."""

from __future__ import annotations

import argparse
import shlex

import arguments
from machine.pythons import Interpreter

HELP = "make a PYTHONPATH folder for an installed one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    parser.add_argument("--site-packages", type=arguments.path, required=True, metavar="DIR")
    parser.add_argument("--out", type=arguments.path, required=True, metavar="DIR")


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from progress import steps
    from wheels import overlay, products

    overlay.check(options.site_packages, options.out, python)
    with steps() as step:
        extensions = products.compiled(step, python)
        overlay.overlay(options.site_packages, extensions, python, options.out)
    print(f"PYTHONPATH={shlex.quote(str(options.out.resolve()))}")
    return 0
