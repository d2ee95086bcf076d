"""The log of JAX's own flag, jax_explain_cache_misses."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import logging
import re
import unittest

import jax
import pytest
from jax.sharding import PartitionSpec as P
from jaxlib import _fastpath_history

import interpreters
from explaining import floats, fresh, place, records_of, told_lines
from paths import ROOT


def test_jaxs_own_flag_logs_one_warning_a_miss(
    flag: None, caplog: pytest.LogCaptureFixture
) -> None:
    f = fresh()
    first, second = (place(floats(4, 4), spec) for spec in (P("a"), P("a", None)))

    for x in (first, first, second, second, first):
        f(x)

    (record,) = records_of(caplog)
    assert record.levelno == logging.WARNING
    assert told_lines(record.getMessage())[1:3] == [
        "for step defined at here, entry 2",
        "x: sharding, same placement, spelled differently: was P('a',), now P('a', None)",
    ]


def test_a_miss_that_jax_explains_gets_the_remedy_and_no_second_warning(
    flag: None, caplog: pytest.LogCaptureFixture
) -> None:
    f = fresh()

    f(1.0)
    f(1)

    (record,) = records_of(caplog)
    assert record.levelno == logging.INFO
    assert told_lines(record.getMessage())[1:] == [
        "for step defined at here, entry 2",
        "x: type of the argument: was float, now int",
        "to fix it: pass one type in every call: float(x)",
    ]


TRACED_TWICE = """
import jax
f = jax.jit(lambda x: x)
f(1.0), f(1)
"""


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ("", True),
        ("import logging; logging.basicConfig()", True),
        ("import logging; logging.getLogger('jaxlib.pjit').setLevel('ERROR')", False),
    ],
    ids=["nothing set up", "logging set up", "the logger silenced"],
)
def test_the_remedy_is_seen_wherever_warnings_are(settings: str, shown: bool) -> None:
    done = interpreters.run(
        ["-c", settings + TRACED_TWICE], settings={"JAX_EXPLAIN_CACHE_MISSES": "1"}
    )

    assert ("to fix it: pass one type in every call: float(x)" in done.stderr) is shown
    assert "TRACING CACHE MISS" in done.stderr


def test_without_the_flag_nothing_is_logged_or_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    f = fresh()
    before = dict(_fastpath_history._histories)

    f(1.0)
    f(1)

    assert records_of(caplog) == []
    assert _fastpath_history._histories == before


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="a scalar key is right there")
@pytest.mark.parametrize("page", ["README.md", "docs/explaining_misses.md"])
def test_the_page_shows_what_the_example_logs(page: str) -> None:
    example = ROOT / "docs" / "examples" / "train.py"

    done = interpreters.run(
        [str(example)],
        settings={"JAX_EXPLAIN_CACHE_MISSES": "1", "JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "0"},
        devices=2,
        cwd=ROOT,
    )

    said = re.sub(r"\d+\.\d{3} ms", "0.846 ms", done.stderr)
    said = re.search(r"FASTPATH.*\n( .*\n)+", said)[0]
    assert f"docs/examples/train.py\n{said}```" in (ROOT / page).read_text()


def test_jaxs_way_of_counting_its_warnings_counts_none_of_ours(flag: None) -> None:
    f = fresh()
    f(1.0)

    with unittest.TestCase().assertLogs(level="WARNING") as logs:
        f(1)

    (record,) = logs.records
    assert record.name.startswith("jax._src.")
