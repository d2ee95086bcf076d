"""The benchmark: its statistics, its page, its checks and its refusals. No test asserts a time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import entry_checks
import figures
from interpreters import stock_python
from machine import pythons, system_packages
from markdown import document, number
from paths import ROOT
from progress import steps
from reckoning import as_json, reckon
from refusal import Refusal
from run import bench, compare, hardware, processes, samples
from run.plan import Place, Plan

TINY = Plan(
    pause_sizes=(1,),
    pause_repeats=1,
    hit_sizes=(1,),
    hit_processes=1,
    hit_repeats=2,
    hit_calls=3,
    miss_sizes=(2,),
    miss_repeats=1,
    process_repeats=1,
    rule_seconds=0.01,
    instruction_sizes=(),
)
# One of eight calls is slow. The first call does not count.
CALLS = np.array([[50, 1, 1, 8, 1, 1, 1, 1, 1, 1]] * 3, float)


def test_the_interval_of_equal_values_is_their_median() -> None:
    assert figures.median([5, 5, 5]) == (5, 5, 5)


def test_the_interval_of_a_median_is_within_the_values() -> None:
    value, low, high = figures.median([1, 2, 3, 4, 100])

    assert value == 3
    assert 1 <= low <= value <= high <= 100


def test_one_value_is_its_own_interval() -> None:
    assert figures.median([7]) == (7, 7, 7)


def test_a_ratio_is_the_median_of_the_ratios_of_pairs() -> None:
    # The machine was twice as slow during the second pair.
    assert figures.median_ratio([2, 4, 2], [1, 2, 1]) == (2, 2, 2)


@pytest.mark.parametrize(
    ("statistic", "is_"),
    [(figures.slowest_over_steady, 8), (figures.extra, 7), (figures.steady, 1)],
)
def test_the_figures_of_a_pause(statistic, is_: float) -> None:
    assert statistic(CALLS) == (is_, is_, is_)


def test_one_slow_repeat_is_not_a_pause() -> None:
    calls = np.ones((3, 10))
    calls[1, 6] = 1000

    assert figures.slowest_over_steady(calls)[0] == 1


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_the_exponent_of_a_power(power: float) -> None:
    costs = {size: 3.0 * size**power for size in (10, 100, 1000)}

    assert figures.exponent(costs) == pytest.approx((power, power, power))


def test_small_sizes_are_not_fitted() -> None:
    assert figures.exponent({1: 900, 10: 10, 100: 100, 1000: 1000}) == pytest.approx((1, 1, 1))
    assert figures.exponent({1: 1, 10: 10, 100: 100}) is None


def test_the_instructions_of_the_loop_around_a_call_are_subtracted() -> None:
    counted = {"measure": "instructions", "part": "hit", "case": "key", "n": 1, "variant": "on"}
    frame = {**counted, "part": "frame", "case": "none", "n": 0, "variant": "none", "calls": 0}
    samples = [
        {**frame, "instructions": 170},
        {**frame, "instructions": 100},
        {**counted, "calls": 10, "instructions": 600},
        {**counted, "calls": 10, "instructions": 500},
    ]

    (figure,) = figures.figures(samples)

    assert (figure["figure"], figure["variant"], figure["value"]) == ("hit", "fixed", 40)


def test_instructions_are_read_from_a_callgrind_dump() -> None:
    dump = (
        "thread: 1\ndesc: Trigger: dump rule/all keys, respelled/10/on/2\nsummary: 0\n\ntotals: 77"
    )

    sample = processes.sample_of(dump)

    assert sample == {
        "measure": "instructions", "part": "rule", "case": "all keys, respelled", "n": 10,
        "variant": "on", "calls": 2, "instructions": 77,
    }  # fmt: skip


def test_each_variant_runs_first_equally_often() -> None:
    variants = samples.VARIANTS

    orders = [samples.in_turn(variants, repeat) for repeat in range(2 * len(variants))]

    assert all(sorted(order, key=variants.index) == list(variants) for order in orders)
    assert all(sum(order[0] == each for order in orders) == 2 for each in variants)


PAUSE = {
    "measure": "pause", "case": "scalar key", "n": 0, "variant": "fixed",
    "cold_entries": [1, 1], "warm_entries": [1, 1],
}  # fmt: skip
HIT = {"measure": "hit", "n": 1, "variant": "fixed", "entries": [1, 1], "counted": {}}
MISS = {
    "measure": "miss", "case": "all keys, respelled", "n": 3, "variant": "ours",
    "counted": {"slow_dispatches": 1, "tables": 1, "respelled_results": 3},
}  # fmt: skip


@pytest.mark.parametrize("sample", [PAUSE, HIT, MISS])
def test_nothing_is_reported_if_the_goals_are_met(sample: dict) -> None:
    assert entry_checks.wrong([sample], devices=2) == []


def test_stock_is_not_checked() -> None:
    assert (
        entry_checks.wrong([{**PAUSE, "variant": "stock", "cold_entries": [1, 2]}], devices=2) == []
    )


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ({**PAUSE, "cold_entries": [1, 2]}, "pause: scalar key, 0 leaves, cold: entries 1 2"),
        ({**HIT, "entries": [1, 2]}, "hit: 1 leaves, fixed: entries rose from 1 to 2"),
        ({**HIT, "counted": {"tables": 1}}, "hit: 1 leaves, fixed: tables rose by 1"),
        ({**MISS, "n": 4}, "miss: all keys, respelled, 4 outputs: respelled_results 3, not 4"),
    ],
)
def test_an_extra_entry_or_counter_is_reported_once(sample: dict, says: str) -> None:
    assert entry_checks.wrong([sample, sample], devices=2) == [says]


@pytest.mark.parametrize(
    ("value", "is_"), [(0, "0"), (0.00123, "0.0012"), (1.23456, "1.235"), (1234.5, "1,234")]
)
def test_numbers_are_shown_with_four_digits(value: float, is_: str) -> None:
    assert number(value) == is_


@pytest.fixture(scope="module")
def run() -> dict:
    """A tiny run of all that the workers measure."""
    workers = {"stock": Path(stock_python()), "ours": Path(sys.executable)}
    with steps() as step:
        measured = list(samples.samples(step, workers, Place(2), TINY))
    return {
        "schema": compare.SCHEMA,
        "commit": "0123",
        "quick": True,
        "machine": hardware.machine() | {"load_before": 0, "load_after": 0},
        "place": {"platform": "cpu", "devices": 2, "found": 2},
        "versions": {"stock": {"jax": "1", "jaxlib": "1", "python": "3", "device": "cpu"}},
        "notes": [],
        "samples": measured,
    }


def test_a_run_has_every_sample_and_no_entry_too_many(run: dict) -> None:
    reckoned = json.loads(as_json(reckon(run)))

    assert reckoned["samples"] == run["samples"]
    assert reckoned["wrong"] == []
    assert {each["measure"] for each in reckoned["samples"]} == {"pause", "hit", "miss"}
    keys = {"measure", "figure", "case", "n", "variant", "unit", "value", "low", "high", "count"}
    assert all(set(each) == keys for each in reckoned["figures"])
    assert all(each["low"] <= each["value"] <= each["high"] for each in reckoned["figures"])


def test_stock_shows_the_second_entry_and_the_workaround_does_not(run: dict) -> None:
    def cold(variant: str) -> list[int]:
        pauses = figures.of(run["samples"], measure="pause", variant=variant, case="key array, P()")
        return pauses[0]["cold_entries"]

    assert cold("stock") == cold("fixed, switched off") == [1, *[2] * 9]
    assert cold("fixed") == cold("workaround") == [1] * 10


def test_the_page_has_every_section_and_names_what_was_not_measured(run: dict) -> None:
    page = document(reckon(run))

    assert [line[3] for line in page.splitlines() if line.startswith("## ")] == [*"G12345"]
    assert "| all entries and counters are right | yes |" in page
    assert "Not measured." in page


@pytest.fixture
def two_runs(run: dict, tmp_path: Path) -> tuple[Path, Path]:
    files = (tmp_path / "a.json", tmp_path / "b.json")
    for file in files:
        file.write_text(as_json(reckon(run)))
    return files


def build_py(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "build" / "build.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_two_runs_are_compared_side_by_side(two_runs: tuple[Path, Path]) -> None:
    done = build_py("bench", "--compare", *two_runs)

    assert done.returncode == 0
    assert "slowest / steady, cold" in done.stdout


EMPTY = {
    "schema": compare.SCHEMA,
    "figures": [],
    "commit": "",
    "quick": True,
    "machine": {"cpu": "", "load_before": 0},
}
FIGURE = figures.figure("hit", "dispatch", "us", (2, 1, 3), 5, n=1, variant="stock")


def test_only_figures_of_both_runs_are_compared() -> None:
    other = FIGURE | {"variant": "fixed"}

    rows = compare.pairs({"figures": [FIGURE, other]}, {"figures": [FIGURE | {"value": 3}]})

    assert rows == [
        ["hit", "dispatch", "", "1", "stock", "us", "2 (1 to 3)", "3 (1 to 3)", "1.500"]
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("[]", "is not a results.json"),
        ('{"schema": 0, "figures": []}', "is not a results.json"),
        ('{"schema": 1, "figures": 1}', "is not a results.json"),
        ('{"schema": 1, "figures": [{"a": 1}]}', "is not a results.json"),
        (json.dumps(EMPTY | {"figures": [1]}), "is not a results.json"),
        (json.dumps(EMPTY | {"machine": []}), "is not a results.json"),
        (json.dumps(EMPTY | {"figures": [FIGURE | {"value": None}]}), "is not a results.json"),
        (json.dumps(EMPTY | {"figures": [FIGURE | {"n": [1]}]}), "is not a results.json"),
        (json.dumps(EMPTY), "no figure"),
    ],
)
def test_a_file_that_is_no_result_is_refused_in_one_line(
    tmp_path: Path, content: str | None, says: str
) -> None:
    file = tmp_path / "results.json"
    if content is not None:
        file.write_text(content)

    done = build_py("bench", "--compare", file, file)

    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_device_is_refused(tmp_path: Path) -> None:
    this = pythons.examine(sys.executable)

    with pytest.raises(Refusal, match="--devices 0: give 1 or more"):
        bench.bench(
            "0.10.2", this, tmp_path, finished=None, node=None, devices=0, quick=True, check=True
        )


def test_after_the_time_limit_there_is_one_repeat_of_each() -> None:
    within = samples.in_time(-1)

    assert [list(within(3)), list(within(3))] == [[0], [0]]


def test_without_a_time_limit_there_are_all_repeats() -> None:
    assert list(samples.in_time(None)(3)) == [0, 1, 2]


def test_only_the_benchmark_asks_for_its_system_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "valgrind" else which(name))

    assert "valgrind" in system_packages.missing([], {"valgrind"})
    assert "valgrind" not in system_packages.missing([])
