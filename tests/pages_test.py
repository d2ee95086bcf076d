"""`build.py pages`: commands write figures, pages show them, and stale figures are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pages import blocks, conformance, demo, figures, releases, stress, systems
from paths import ROOT
from refusal import Refusal
from run import hardware
from systems import every_wheel, matrix
from systems.matrix import Row

HEAD = subprocess.run(
    ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
).stdout.strip()


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Figures and pages of a test, at a commit that git knows."""
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "KEPT", tmp_path / "docs" / "figures")
    monkeypatch.setattr(figures, "FRESH", tmp_path / "fresh")
    monkeypatch.setattr(figures, "_in_history", lambda commit: commit == HEAD)
    monkeypatch.setattr(hardware, "commit", lambda: HEAD)
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    monkeypatch.setitem(sys.modules, "pages.small", SimpleNamespace(entries=lambda: "1 1 2\n"))
    (tmp_path / "README.md").write_text("")
    return tmp_path


def page(folder: Path, text: str) -> list[tuple[str, str]]:
    (folder / "README.md").write_text(text)
    return [(path.name, after) for path, after in blocks.changed()]


def test_taken_figures_are_those_of_the_last_run() -> None:
    figures.record("demo", "build.py demo", exact={"entries": [1, 1, 2]}, measured={"ms": 3})
    assert figures.kept("demo") is None

    figures.take("demo")

    kept = figures.kept("demo")
    assert kept is not None
    assert (kept["command"], kept["commit"]) == ("build.py demo", HEAD)
    assert (kept["exact"], kept["measured"]) == ({"entries": [1, 1, 2]}, {"ms": 3})
    assert figures.faults() == []


def test_a_long_row_has_a_line_of_its_own(folders: Path) -> None:
    rows = [["case", number, "x" * 90] for number in range(3)]
    figures.record("long", "build.py long", exact={"rows": rows})

    text = (folders / "fresh" / "long.json").read_text()

    assert [line for line in text.splitlines() if '["case", 1, "' in line]
    figures.take("long")
    assert (figures.kept("long") or {})["exact"] == {"rows": rows}


def test_the_figures_of_this_commit_can_be_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    figures.record("a", "build.py a")
    figures.record("b", "build.py b")
    monkeypatch.setattr(hardware, "commit", lambda: "0" * 40)
    figures.record("b", "build.py b")

    assert figures.fresh() == ["b"]


def test_figures_that_no_command_wrote_cannot_be_taken() -> None:
    figures.record("other", "build.py other")

    with pytest.raises(Refusal, match=r"--take demo: no command .* there are: other"):
        figures.take("demo")


@pytest.mark.parametrize(
    ("commit", "says"),
    [(f"{HEAD}+", "changes that are in no commit"), ("0" * 40, "is not in the history")],
)
def test_figures_of_uncommitted_code_are_refused(
    commit: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "commit", lambda: commit)
    figures.record("demo", "build.py demo")

    with pytest.raises(Refusal, match=f"{says}; run build.py demo again"):
        figures.take("demo")


def test_figures_are_stale_if_the_command_now_gives_others() -> None:
    figures.record("demo", "build.py demo", exact={"entries": [1, 1, 2]})
    figures.take("demo")

    figures.record("demo", "build.py demo", exact={"entries": [1, 1, 1]})

    (fault,) = figures.faults()
    assert fault.startswith("docs/figures/demo.json: is stale")
    assert fault.endswith("run build.py demo, then build.py pages --take demo")


def test_a_run_at_another_commit_and_other_times_make_no_figures_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures.record("demo", "build.py demo", exact={"entries": [1]}, measured={"ms": 3})
    figures.take("demo")

    figures.record("demo", "build.py demo", exact={"entries": [1]}, measured={"ms": 4})
    assert figures.faults() == []
    figures.record("demo", "build.py demo", exact={"entries": [2]})
    monkeypatch.setattr(hardware, "commit", lambda: "0" * 40)
    assert figures.faults() == []


def test_a_file_that_holds_no_figures_is_refused(folders: Path) -> None:
    figures.KEPT.mkdir(parents=True)
    (figures.KEPT / "demo.json").write_text("[]")

    with pytest.raises(Refusal, match=r"demo\.json: holds no figures"):
        figures.faults()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<!-- figures: small.entries -->\n<!-- /figures -->", "\n1 1 2\n"),
        ("<!-- figures: small.entries -->\n1 1 1\n<!-- /figures -->", "\n1 1 2\n"),
        ("<!-- figures: small.entries -->1 1 1<!-- /figures -->", "1 1 2"),
    ],
)
def test_a_block_is_filled_from_its_function(folders: Path, before: str, after: str) -> None:
    text = f"It makes {{}}.\n{before}, as ever\n"

    filled = f"<!-- figures: small.entries -->{after}<!-- /figures -->"

    assert page(folders, text) == [("README.md", text.replace(before, filled))]
    assert page(folders, text.replace(before, filled)) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<!-- figures: small.entries -->", "has no end"),
        ("<!-- figures: small.gone --><!-- /figures -->", "no function gone"),
        ("<!-- figures: absent.f --><!-- /figures -->", "no function f in build/pages/absent"),
        ("<!-- figures: small --><!-- /figures -->", r"no function \(none\)"),
    ],
)
def test_a_block_that_nothing_fills_is_refused(folders: Path, text: str, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        page(folders, text)


def keep(name: str, exact: dict | None = None, measured: dict | None = None) -> None:
    figures.record(name, "build.py it", exact, measured)
    figures.take(name)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ")]


def demo_row(case: str, run: str | None, entries: list[int], **more: object) -> dict:
    row = {"section": 1, "case": case, "run": run, "entries": entries, "goal": [1, 1, 1]}
    return row | {"traces": 1, "outcome": "ok", "spec": "P()"} | more


def test_the_readme_shows_missed_goals_in_bold_and_equal_runs_once() -> None:
    stock = [
        demo_row("key", "cold", [1, 1, 2]),
        demo_row("float", "cold", [1, 1, 1]),
        demo_row("float", "warm", [1, 1, 1]),
        demo_row("no_tracing", "warm", [1], outcome="raises RuntimeError"),
    ]
    ours = [each | {"entries": [1, 1, 1], "outcome": "ok"} for each in stock]
    keep("demo-0.10.2", {"jax": "0.10.2", "stock": stock, "ours": ours})

    assert lines(demo.report())[2:] == [
        "| key | cold | **1 1 2** | 1 1 1 | `P()` | `P()` |",
        "| float | cold, warm | 1 1 1 | 1 1 1 | `P()` | `P()` |",
        "| no_tracing | warm | 1, **raises RuntimeError** | 1 1 1 | `P()` | `P()` |",
    ]


def test_the_readme_shows_each_stock_release_in_order() -> None:
    for release, entries in (("0.12.0", [1, 1, 1]), ("0.10.2", [1, 2, 2])):
        stock = [demo_row("key ()", None, entries, section=2)]
        ours = [demo_row("key ()", None, [1, 1, 1], section=2)]
        keep(f"demo-{release}", {"jax": release, "stock": stock, "ours": ours})

    assert lines(demo.kind()) == [
        "| program | stock 0.10.2 | stock 0.12.0 | fixed |",
        "| --- | --- | --- | --- |",
        "| key () | **1 2 2** | 1 1 1 | 1 1 1 |",
    ]


def test_the_matrix_has_a_column_for_each_release() -> None:
    assert releases.matrix().startswith("Not run yet")

    tally = {"passed": 3, "failed": 0, "skipped": 1}
    for release, tallies in (
        ("0.10.2 cp311", {"a_test.py": tally, "b_test.py": tally}),
        ("0.6.2 cp311", {"a_test.py": None}),
    ):
        keep(f"test-{release[:5]}", {"release": release}, {"tallies": tallies})

    assert lines(releases.matrix()) == [
        "| passed / failed / skipped | 0.6.2 cp311 | 0.10.2 cp311 |",
        "| --- | --- | --- |",
        "| a_test.py | crashed | 3 / 0 / 1 |",
        "| b_test.py |  | 3 / 0 / 1 |",
        "| all | 0 / 0 / 0 | 6 / 0 / 2 |",
        f"| commit | {HEAD[:10]} | {HEAD[:10]} |",
    ]


def test_the_readme_shows_what_ran_on_each_python_or_that_its_wheel_was_only_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def row(system: str, machine: str, python: str, check: str, result: str) -> Row:
        return Row(system, machine, python, "0.10.2", "a wheel", check, result)

    rows = [
        row("any", "aarch64", "cp314t", every_wheel.CHECK, "built only"),
        row("any", "x86_64", "cp312", every_wheel.CHECK, "installed here: the rule is on"),
        row("Debian 12", "x86_64", "3.12.1", "demo", "fine"),
        row("Debian 12", "x86_64", "3.12.1", "all tests", "1 failed, 2 passed"),
        row("Debian 13", "x86_64", "3.13.5, no GIL", "demo --wheel, not as root", "fine"),
        row("Debian 13", "aarch64, emulated", "3.13.5", "demo", "fine"),
    ]
    monkeypatch.setattr(matrix, "read", lambda: rows)

    assert lines(systems.tried()) == [
        "| CPython | x86_64 | aarch64 |",
        "| --- | --- | --- |",
        "| 3.11 | Debian 12: all tests |  |",
        "| 3.12 | Debian 12: demo, **all tests: failed** |  |",
        "| 3.13 |  | Debian 13, emulated: demo |",
        "| 3.13t | Debian 13: demo --wheel |  |",
        "| 3.14t |  | built only |",
    ]


def test_the_table_of_jax_s_own_tests_names_those_that_differ() -> None:
    exact = {"sides": ["stock", "ours"], "differ": ["pjit_test.py::T::test_a"]}
    files = {"pjit": [[3, 0, 1], [2, 1, 1]], "api": [[5, 0, 0], [5, 0, 0]]}
    keep("conformance-0.10.2", exact, {"files": files})

    text = conformance.tables()

    assert lines(text)[2:] == [
        "| pjit | 3 / 0 / 1 | 2 / 1 / 1 | 1 |",
        "| api | 5 / 0 / 0 | 5 / 0 / 0 | 0 |",
        "| all | 8 / 0 / 1 | 7 / 1 / 1 | 1 |",
    ]
    assert "Of 9 tests these differ: `pjit_test.py::T::test_a`." in text
    assert f"`build.py it` at commit {HEAD[:10]}" in text


def test_the_load_of_stock_and_ours_is_shown_side_by_side() -> None:
    counts = dict.fromkeys(["calls", "functions", "wrong entries", "raced functions"], 1200)
    threads = {"program": "threads", "wrong values": 0, **counts}
    counters = {"slow_dispatches": 7, "tables": 7, "left_to_stock": 0}
    memory = {"program": "functions", "functions": 20, "resident MiB": [1.5, 1.5]}
    alive = {"jitted functions": 3}
    runs = [
        threads | {"jaxlib": "stock", "counters": {}},
        threads | {"jaxlib": "ours", "counters": counters},
        memory | {"jaxlib": "ours", "alive before": alive, "alive after": alive},
    ]

    shown = lines(stress.tables(runs))

    assert "| calls | 1,200 | 1,200 |" in shown
    assert "| slow dispatches counted |  | 7 |" in shown
    assert "| resident after 20, MiB | 1.5 |" in shown
    assert "| jitted functions alive, before / after | 3 / 3 |" in shown
