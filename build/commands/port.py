"""Puts the fix into a git checkout of jax. It needs no Python package and no system package."""

from __future__ import annotations

import argparse

import arguments
from port.anchors import PARTS

HELP = "put the fix into a git checkout of jax"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.jax_source(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true", help="print the diff, and write nothing")
    instead.add_argument("--revert", action="store_true", help="take the fix out again")
    parser.add_argument(
        "--only", choices=PARTS, help="one of the two parts, each of which stands alone"
    )
    parser.add_argument("--force", action="store_true", help="also over uncommitted changes")


def run(options: argparse.Namespace) -> int:
    from port.port import port

    parts = (options.only,) if options.only else PARTS
    port(options.jax_source, parts, check=options.check, revert=options.revert, force=options.force)
    return 0
