"""A fault in a dispatch has the outcome of stock. If the rule steps aside, it says so once."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import functools
import sys
from typing import Any

import pytest

import faults
import interpreters

LENIENT = {"JAXLIB_PJIT_STRICT": "0"}
each_fault = pytest.mark.parametrize("name", faults.FAULTS)
each_step_aside = pytest.mark.parametrize("name", faults.STEPPING_ASIDE)
every_fault = pytest.mark.parametrize("name", [*faults.FAULTS, *faults.STEPPING_ASIDE])


@functools.cache
def report_of(python: str, *names: str) -> dict[str, Any]:
    program = [str(interpreters.TESTS / "faults.py"), *names]
    return interpreters.answer(program, python=python, settings=LENIENT)


def ours(name: str) -> dict[str, Any]:
    """The report of the process that met the fault: of its own, where it is said once a process."""
    together = name in faults.FAULTS
    return report_of(sys.executable, *(faults.FAULTS if together else [name]))


def stock() -> dict[str, Any]:
    return report_of(interpreters.stock_python(), *faults.FAULTS, *faults.STEPPING_ASIDE)


@every_fault
def test_calls_around_a_fault_return_and_raise_what_stock_does(name: str) -> None:
    assert ours(name)["outcomes"][name]["calls"] == stock()["outcomes"][name]["calls"]


@every_fault
def test_a_fault_makes_no_more_entries_than_with_stock(name: str) -> None:
    here, there = (report["outcomes"][name]["entries"] for report in (ours(name), stock()))

    assert [max(pair) for pair in zip(here, there)] == there


@each_step_aside
def test_a_rule_that_steps_aside_says_so_once(name: str) -> None:
    assert ours(name)["records"] == ["WARNING"]


@each_step_aside
def test_a_dispatch_that_the_rule_steps_aside_from_counts_as_left_to_stock(name: str) -> None:
    assert ours(name)["left"] > 0


def test_the_rule_does_not_step_aside_if_jax_itself_meets_the_fault() -> None:
    report = report_of(sys.executable, *faults.FAULTS)

    assert (report["left"], report["records"]) == (0, [])
