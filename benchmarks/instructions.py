"""Counts instructions of hits or misses. Runs as `instructions.py hits|misses SIZE...` under
`valgrind --tool=callgrind`.

Instrumentation is on for a few calls only: with it, importing jax alone would take minutes.
Each counted part is a callgrind dump that is named `MEASURE/KIND/SIZE/VARIANT/CALLS`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import jax

from dispatches import KINDS, dispatch
from programs import SCALAR, program, without_garbage_collection
from rule_switch import ours, set_rule

_HITS, _MISSES, _ROUNDS = 20, 10, 3


def counted(name: str, call: Callable[[], None], calls: int) -> None:
    """Counts `calls` calls in a dump."""
    _control("--instr=on")
    for _ in range(calls):
        call()
    _control("--instr=off")
    _control(f"--dump={name}/{calls}")


def _control(command: str) -> None:
    subprocess.run(["callgrind_control", command, str(os.getpid())], stdout=sys.stderr, check=True)


def hits(size: int) -> None:
    """Counts hits with the rule on and off, or stock's."""
    run = program(SCALAR, size, False)
    variants = (("off", False), ("on", True)) if ours() else (("stock", None),)
    # More than once: malloc's free lists differ a little each time.
    for variant, enabled in variants * _ROUNDS:
        set_rule(enabled)
        run.step._clear_cache()
        state = [run.keys, run.leaves]

        def call(state: list = state) -> None:
            state[:] = run.step(*state)

        for _ in range(4):
            call()
        jax.block_until_ready(state)
        counted(f"hit/{SCALAR}/{size}/{variant}", call, _HITS)


def misses(size: int) -> None:
    """Counts whole slow dispatches, and recorded ones with the rule on and off."""
    for kind in KINDS:
        made = dispatch(kind, size)

        def slow(made: object = made) -> None:
            made.function._clear_cache()
            made.function(made.argument)

        def replay(made: object = made) -> None:
            made.replay(made.argument)

        for variant, enabled in (("on", True), ("off", False)):
            set_rule(enabled)
            replay()
            counted(f"rule/{kind}/{size}/{variant}", replay, _MISSES)
        slow()
        counted(f"slow/{kind}/{size}/off", slow, _MISSES)


def main(what: str, *sizes: str) -> None:
    count = {"hits": hits, "misses": misses}[what]
    with without_garbage_collection():
        # The cost of switching the counting on and off. The first time costs more.
        for _ in range(2):
            counted("frame/none/0/none", lambda: None, 0)
        for size in map(int, sizes):
            count(size)


if __name__ == "__main__":
    main(*sys.argv[1:])
