"""The explanations of programs that follow public reports, and that their advice works."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import collections

import jax
import jaxlib.pjit
import pytest

from libraries import imported
from paths import ROOT
from public_reports import REPORTS, Report

NEEDED = {"layout": (0, 7), "jit configuration": (0, 8)}  # releases of jax


def run(report: Report, is_advised: bool) -> list[jaxlib.pjit.Dispatch]:
    with jaxlib.pjit.explain() as misses:
        report.program(is_advised)
    return misses


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.program.__name__)
def test_a_report_is_explained_and_its_program_as_advised_has_no_miss(report: Report) -> None:
    imported(report.needs)
    if jax.__version_info__ < NEEDED.get(report.cause, (0,)):
        pytest.skip("this release does it otherwise")

    (miss, *_) = run(report, False)
    path = miss.differences[0].path if miss.differences else ""
    assert (path, miss.cause, miss.advice) == (report.path, report.cause, report.advice)

    assert [str(miss) for miss in run(report, True)] == []


def test_the_page_has_each_report_with_its_explanation() -> None:
    page = (ROOT / "docs" / "explaining_misses.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| [")]

    assert [
        (row[0].partition("](https://github.com/")[2].rstrip(") "), row[2]) for row in rows
    ] == [
        (report.number, f"`{report.path}`: {report.cause}" if report.path else report.cause)
        for report in REPORTS
    ]


def test_each_kind_has_two_reports_except_for_the_rare_ones() -> None:
    counts = collections.Counter(report.cause for report in REPORTS)

    rare = [cause for cause, count in counts.items() if count < 2]

    assert rare == [
        "layout",
        "the same signature as an earlier call, whose entry is gone",
        "it has host callbacks or other effects",
    ]
