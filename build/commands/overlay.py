"""Makes an overlay for an installed jaxlib, and prints how to use it."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path

import arguments
from machine.gpu_node import check_environment
from machine.pythons import Interpreter

HELP = "make a PYTHONPATH folder for an installed jaxlib"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    arguments.finished_wheel(parser)
    arguments.find_links(parser)
    arguments.platform(parser)
    parser.add_argument("--site-packages", type=arguments.path, required=True, metavar="DIR")
    parser.add_argument("--out", type=arguments.path, required=True, metavar="DIR")


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from checks.demo import demo_of_overlay
    from progress import steps
    from wheels import overlay, products

    node = arguments.gpu_node(options, python)
    overlay.check(options.site_packages, options.out, python)
    if node:
        check_environment(python.path, node, {"PYTHONPATH": str(options.site_packages.resolve())})
    with steps() as step, tempfile.TemporaryDirectory() as folder:
        if options.finished:
            products.finished_version(step, options.finished, python)
            extensions = products.unpacked(options.finished, Path(folder))
        else:
            extensions = products.compiled(step, python)
        overlay.overlay(options.site_packages, extensions, python, options.out)
    print(f"PYTHONPATH={shlex.quote(str(options.out.resolve()))}")
    return demo_of_overlay(python, options.site_packages, options.out, node) if node else 0
