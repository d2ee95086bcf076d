"""The switch, the strict mode, and how the rule handles what it does not expect."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from collections.abc import Iterator

import pytest
from jaxlib import _pjit

import interpreters
import reproduction

# A row whose goal stock misses in every release.
CASE = next(case for case in reproduction.SECTION_2 if case.name == "key (4,), P()")
FIXED, STOCK = [1, 1, 1, 1, 1], [1, 2, 2, 2, 2]

FED_BACK = f"""
import json, reproduction
from jaxlib import _pjit
case = reproduction.SECTION_2[{reproduction.SECTION_2.index(CASE)}]
run, _ = reproduction.cold_and_warm(case, "threefry2x32")
print(json.dumps([_pjit.physical_out_shardings(), _pjit.strict(), run.entries]))
"""


@pytest.fixture
def switch() -> Iterator[None]:
    """Restores the switch after the test."""
    previous = _pjit.physical_out_shardings()
    yield
    _pjit.set_physical_out_shardings(previous)


@pytest.mark.parametrize(
    ("settings", "on"),
    [
        ({}, True),
        ({"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "1"}, True),
        ({"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": ""}, True),
        ({"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "0"}, False),
        ({"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "False"}, False),
        ({"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "off"}, False),
    ],
    ids=str,
)
def test_the_rule_is_on_unless_the_environment_says_no(settings: dict[str, str], on: bool) -> None:
    now_on, _, entries = interpreters.answer(FED_BACK, settings=settings, devices=4)

    assert (now_on, entries) == (on, FIXED if on else STOCK)


@pytest.mark.parametrize(
    ("settings", "strict"),
    [
        ({}, False),
        ({"JAXLIB_PJIT_STRICT": "0"}, False),
        ({"JAXLIB_PJIT_STRICT": "1"}, True),
        ({"JAXLIB_PJIT_STRICT": "True"}, True),
    ],
    ids=str,
)
def test_the_mode_is_strict_where_the_environment_says_yes(
    settings: dict[str, str], strict: bool
) -> None:
    _, now_strict, entries = interpreters.answer(FED_BACK, settings=settings, devices=4)

    assert (now_strict, entries) == (strict, FIXED)


def test_an_unknown_word_in_the_environment_is_named_and_ignored() -> None:
    settings = {"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "maybe", "JAXLIB_PJIT_STRICT": "2"}
    program = "from jaxlib import _pjit; print(_pjit.physical_out_shardings(), _pjit.strict())"

    done = interpreters.run(program, settings=settings)

    assert (done.stdout, done.stderr.splitlines()) == ("True False\n", [
        f"{name}={word}: this word is unknown, and counts as not set; use 1 or 0."
        for name, word in settings.items()
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "entries"),
    [((False, True), FIXED), ((True, False), STOCK)],
    ids=["turned on", "turned off"],
)
def test_the_rule_can_be_switched_at_run_time(
    settings: tuple[bool, bool], entries: list[int], switch: None
) -> None:
    for setting in settings:
        _pjit.set_physical_out_shardings(setting)

    cold, _ = reproduction.cold_and_warm(CASE, "threefry2x32")

    assert cold.entries == entries


def test_switching_returns_the_previous_setting(switch: None) -> None:
    _pjit.set_physical_out_shardings(True)

    returned = [_pjit.set_physical_out_shardings(on) for on in (False, False, True, True)]

    assert returned == [True, False, False, True]


def test_with_the_rule_off_a_dispatch_counts_no_table(switch: None) -> None:
    _pjit.set_physical_out_shardings(False)
    before = _pjit.counters()

    reproduction.cold_and_warm(CASE, "threefry2x32")

    assert _pjit.counters()["tables"] == before["tables"]


# The table has an extra entry, which stock accepts. Prints the outcomes of two functions.
UNEXPECTED_FORM = """
import json, logging, jax, reproduction
import jax._src.pjit as pjit
make = pjit._get_fastpath_data

def unexpected(*args, **kwargs):
    data = make(*args, **kwargs)
    return data and data._replace(out_shardings=[*data.out_shardings, data.out_shardings[0]])

class Kept(logging.Handler):
    records = []
    def emit(self, record):
        self.records.append([record.name, record.levelname])

logging.getLogger().addHandler(Kept())
first = reproduction.SECTION_1[0].make("threefry2x32")
functions = [reproduction.counted(reproduction.identity) for _ in range(2)]
pjit._get_fastpath_data = unexpected
outcomes = []
for f, traces in functions:
    run = reproduction.call_back(f, traces, first, 3)
    data = jax.device_get(reproduction.base_array(run.last)).tolist()
    outcomes.append([run.outcome, run.entries, data])
try:
    from jaxlib import _pjit
    left_to_stock = _pjit.counters()["left_to_stock"]
except ImportError:
    left_to_stock = None
print(json.dumps({"outcomes": outcomes, "records": Kept.records, "left": left_to_stock}))
"""


def test_an_unexpected_form_is_dispatched_as_by_stock() -> None:
    stock = interpreters.answer(UNEXPECTED_FORM, python=interpreters.stock_python())

    ours = interpreters.answer(UNEXPECTED_FORM)

    assert ours["outcomes"] == stock["outcomes"]


def test_every_unexpected_form_counts_as_left_to_stock() -> None:
    ours = interpreters.answer(UNEXPECTED_FORM)

    assert ours["left"] == sum(entries[-1] for _, entries, _ in ours["outcomes"])


def test_unexpected_forms_are_warned_of_once_a_process() -> None:
    ours = interpreters.answer(UNEXPECTED_FORM)

    assert ours["records"] == [["jaxlib.pjit", "WARNING"]]


def test_in_strict_mode_an_unexpected_form_is_an_error() -> None:
    ours = interpreters.answer(UNEXPECTED_FORM, settings={"JAXLIB_PJIT_STRICT": "1"})

    assert [outcome for outcome, *_ in ours["outcomes"]] == ["raises ValueError"] * 2


def test_in_strict_mode_nothing_counts_as_left_to_stock_and_there_is_no_warning() -> None:
    ours = interpreters.answer(UNEXPECTED_FORM, settings={"JAXLIB_PJIT_STRICT": "1"})

    assert (ours["left"], ours["records"]) == (0, [])
