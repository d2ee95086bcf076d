"""Threads that call, explain, clear JAX's caches and drop functions at the same time."""

from __future__ import annotations

import interpreters

PROGRAM = [str(interpreters.TESTS / "stress.py"), "hammer", "--seconds", "5", "--json"]


def test_threads_that_explain_and_clear_caches_compute_what_one_alone_does() -> None:
    report = interpreters.answer(PROGRAM, settings={"JAXLIB_PJIT_STRICT": "1"})

    assert report["ok"]
    assert report["wrong"] == report["counters"]["left_to_stock"] == 0
    assert report["counters"]["slow_dispatches"] >= report["explained"] // report["threads"] > 0


def test_a_stock_jaxlib_has_nothing_to_hammer() -> None:
    done = interpreters.run(PROGRAM, python=interpreters.stock_python())

    assert done.returncode == 2
    assert done.stderr.endswith("hammer is for a jaxlib of ours; this one is stock\n")
