"""Puts load on a stock jaxlib and on ours: many threads, and a great many functions."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter

HELP = "put load on stock and ours: threads, functions, memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    arguments.jaxlib(parser)


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from checks.stress import run_stress

    return run_stress(options.jaxlib, python)
