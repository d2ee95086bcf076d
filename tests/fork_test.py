"""In a forked process, the locks that another thread held at the fork are free."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import threading
from collections.abc import Callable
from typing import Any

import pytest
from jaxlib import (
    _fastpath_ahead,
    _fastpath_compilations,
    _fastpath_history,
    _fastpath_lineage,
    _fastpath_report_rows,
    _fastpath_report_timeline,
)

LOCKS: dict[str, Callable[[], Any]] = {
    "history": lambda: _fastpath_history.lock,
    "lineage": lambda: _fastpath_lineage._lock,
    "ahead of time": lambda: _fastpath_ahead._lock,
    "compilations": lambda: _fastpath_compilations._lock,
    "report": lambda: _fastpath_report_rows.Report()._lock,
    "timeline": lambda: _fastpath_report_timeline.Timeline()._lock,
}


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_lock_that_another_thread_holds_is_free_in_a_forked_process(name: str) -> None:
    lock = LOCKS[name]()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    pid = os.fork()
    if pid == 0:
        os._exit(0 if lock.acquire(timeout=0) else 1)
    done.set()
    thread.join()

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
