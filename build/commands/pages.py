"""Rewrites the figures in the README and in docs/, or checks that they are current."""

from __future__ import annotations

import argparse

import arguments
from machine.pythons import Interpreter
from paths import ROOT

HELP = "rewrite the figures of the pages, or check them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.python(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="write nothing; fail if a figure differs"
    )
    what.add_argument(
        "--take",
        nargs="*",
        metavar="NAME",
        help="first take figures of the last runs into docs/ (all that belong to this commit)",
    )


def run(options: argparse.Namespace, python: Interpreter) -> int:
    from pages import blocks, figures

    if options.take is not None:
        for name in options.take or figures.fresh():
            figures.take(name)
    changed = list(blocks.changed())
    if not options.check:
        for path, text in changed:
            path.write_text(text)
            print(path.relative_to(ROOT))
        return 0
    faults = figures.faults()
    faults += [f"{path.relative_to(ROOT)}: differs from its figures" for path, _ in changed]
    for fault in faults:
        print(fault)
    print("\n".join(["Some pages are stale: see above"] if faults else ["All figures hold"]))
    return 1 if faults else 0
