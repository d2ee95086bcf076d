"""The report as text: short, plain in a pipe, and never folded within a path."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

import jaxlib.version
import pytest
from jaxlib._fastpath_report_rows import Beside, Cause, Row
from jaxlib._fastpath_report_text import text

import interpreters
from libraries import imported
from paths import ROOT
from reports import TITLE, report, rows

SCRIPT = """
import jax
@jax.jit
def step(x):
    return x
step(1.0)
step(1)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


PATHS = (
    "/home/some one/a_project/with-a-long-name/train.py:123",
    "a_project/with-a-long-name/train.py:456 (main)",
    "numpyro/infer/mcmc.py:780 (run)",
)
ROW = Row(
    "step", PATHS[0], 1, 1234, 1224, 3, 1224, 81.25, 1234567.8,
    (Cause(1224, 1234567.8, f"{PATHS[1]} through {PATHS[2]}",
           ("args[0]: sharding, same placement, spelled differently: was P('a'), now P()",
            "to fix it: write P(None, 'data') for it wherever it is placed")),),
)  # fmt: skip
BESIDE = Beside(PATHS[1], "operation outside jit", ("scan", "add"), 3, 45.6, ())


def test_the_text_of_a_function_and_of_a_line() -> None:
    assert text([ROW], [BESIDE], None).splitlines() == [
        f"{TITLE}: 1,234 slow of 1 function; 3 compilations outside jitted functions",
        "",
        "first, ms  lost, ms   slow  compiled  entries  function",
        f"     81.2 1234567.8   1234         3     1224  step at {PATHS[0]}",
        "",
        f"step at {PATHS[0]}",
        f"  1,224 times, 1,234,567.8 ms, the longest from {PATHS[1]} through {PATHS[2]}",
        "    args[0]: sharding, same placement, spelled differently: was P('a'), now P()",
        "    to fix it: write P(None, 'data') for it wherever it is placed",
        "",
        "       ms  compiled  outside jitted functions",
        f"     45.6         3  scan, add (operation outside jit) from {PATHS[1]}",
    ]


@pytest.mark.parametrize("width", [20, 66, 80, 120])
def test_no_path_is_broken_at_any_width(width: int) -> None:
    narrow, wide = (text([ROW], [BESIDE], columns) for columns in (width, None))

    assert all(path in narrow for path in PATHS)
    assert narrow.split() == wide.split()
    longest = max(len(path) for path in PATHS)
    assert all(len(line) <= max(width, longest + 4) for line in narrow.splitlines())


def test_many_rows_are_cut_to_a_dozen_and_the_rest_is_counted() -> None:
    lines = text([ROW._replace(causes=())] * 20, [], None).splitlines()

    assert len(lines) == 3 + 12 + 1
    assert lines[-1] == "and 8 more, 9,872 times, 9,876,542.4 ms"


def test_many_causes_are_cut_to_three_and_the_rest_is_counted() -> None:
    row = ROW._replace(causes=tuple(Cause(2, 5.0, "a.py:1", (f"cause {n}",)) for n in range(8)))

    lines = text([row], [], None).splitlines()

    assert lines[-1] == "  10 times, 25.0 ms, for other reasons"
    assert sum(line.startswith("    cause") for line in lines) == 3


def test_the_text_in_a_pipe_is_plain_and_has_relative_paths(script: Path) -> None:
    done = interpreters.run(
        ["-m", "jaxlib.fastpath_report", script.name],
        settings={"COLUMNS": "30", "FORCE_COLOR": "1"}, cwd=script.parent,
    )  # fmt: skip

    assert done.stderr.isascii()
    assert "\x1b" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == f"{TITLE}: 2 slow of 1 function"
    assert lines[3].endswith("2         2        2  step at train.py:3")
    assert lines[6].endswith(" ms, the longest from train.py:7 (<module>)")
    assert lines[7] == "    x: type of the argument: was float, now int"


def in_a_terminal(columns: int, script: Path) -> str:
    """The report on a terminal of that width."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "jaxlib.fastpath_report", str(script)],
        interpreters.environment(sys.executable, {}, devices=1),
        file_actions=[(os.POSIX_SPAWN_DUP2, terminal, descriptor) for descriptor in (1, 2)],
    )
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(controller, 4096):
            shown += part
    except OSError:  # on Linux: the child has closed it
        pass
    os.close(controller)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return shown.decode()


def test_a_terminal_gets_folded_lines_and_whole_paths(script: Path) -> None:
    shown = in_a_terminal(40, script)

    assert f"{script}:3" in shown
    assert f"{script}:7 (<module>)" in shown
    longest = len(f"{script}:7 (<module>)") + 4
    assert all(len(line) <= longest for line in shown.splitlines())


def test_the_json_has_the_same_rows(script: Path) -> None:
    found = rows(str(script))

    (row,) = found["functions"]
    (cause,) = row.pop("causes")
    assert row.pop("first_ms") > 0
    assert row.pop("lost_ms") == cause.pop("ms") > 0
    assert row == {
        "function": "step",
        "defined_at": f"{script}:3",
        "functions": 1,
        "slow_dispatches": 2,
        "misses": 1,
        "compiled": 2,
        "entries": 2,
    }
    assert cause.pop("said")[0] == "x: type of the argument: was float, now int"
    assert cause == {"times": 1, "worst_call": f"{script}:7 (<module>)"}
    assert found["compilations"] == []


EXAMPLES = ("equinox_loop", "nnx_train")


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("rule", ["0", "1"], ids=["without the rule", "with the rule"])
def test_a_real_training_loop_before_and_after(name: str, rule: str) -> None:
    imported({"equinox_loop": "equinox", "nnx_train": "flax.nnx"}[name])
    example = f"docs/examples/{name}.py"

    found = rows(example, settings={"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": rule})["functions"]

    (step,) = (row for row in found if row["function"] == "step")
    is_fixed = rule == "1" or jaxlib.version.__version_info__ >= (0, 11)
    assert (step["slow_dispatches"], step["entries"]) == ((1, 1) if is_fixed else (2, 2))
    causes = [(cause["times"], cause["worst_call"].split(":")[0]) for cause in step["causes"]]
    assert causes == ([] if is_fixed else [(1, example)])
    said = "".join(line for cause in step["causes"] for line in cause["said"])
    assert ("same placement, spelled differently" in said) is not is_fixed


def without_figures(lines: list[str]) -> list[str]:
    return [re.sub(r" *\d+\.\d", " N", line) for line in lines]


@pytest.mark.skipif(
    jaxlib.version.__version_info__ >= (0, 11), reason="a scalar key is right there"
)
def test_the_page_on_explanations_shows_the_report_of_the_example() -> None:
    page = (ROOT / "docs" / "explaining_misses.md").read_text()
    command = "python -m jaxlib.fastpath_report docs/examples/train.py\n"

    done = report("docs/examples/train.py", settings={"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": "0"})

    shown = page.split(command)[1].split("```")[0].splitlines()
    # JAX's own operations have other names in other releases.
    functions = slice(1, 8)
    said = done.stderr.splitlines()
    assert without_figures(shown)[functions] == without_figures(said)[functions]
