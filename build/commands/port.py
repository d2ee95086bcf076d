"""Applies the fix to a git checkout of jax. It needs no Python package and no system package."""

from __future__ import annotations

import argparse

import arguments
from port.anchors import PARTS

HELP = "apply the fix to a git checkout of jax"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.jax_source(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true", help="print the diff, and write nothing")
    instead.add_argument("--revert", action="store_true", help="remove the fix")
    parser.add_argument(
        "--only", choices=PARTS, help="apply only one of the two parts; each works alone"
    )
    parser.add_argument(
        "--force", action="store_true", help="even if the checkout has uncommitted changes"
    )


def run(options: argparse.Namespace) -> int:
    from port.port import port

    parts = (options.only,) if options.only else PARTS
    port(options.jax_source, parts, check=options.check, revert=options.revert, force=options.force)
    return 0
