"""Compares several designs of the fix on the same programs."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter

HELP = "count the programs that each design gets wrong"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    arguments.jaxlib(parser)


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from checks.designs import designs

    return designs(options.jaxlib, python)
