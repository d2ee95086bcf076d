"""`python -m jaxlib.fastpath_report`: the program unharmed, and what the report says of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jaxlib.fastpath_report
import jaxlib.pjit
import pytest

import interpreters
from paths import ROOT

SCRIPT = """
import sys
import jax
@jax.jit
def step(x):
    return x
step(1.0)
step(1)
print("out", sys.argv[1:], __name__)
print("err", file=sys.stderr)
"""


def report(
    *arguments: str, settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return interpreters.run(
        ["-m", "jaxlib.fastpath_report", *arguments], settings=settings, devices=2
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_the_program_has_its_own_arguments_and_output(script: Path) -> None:
    done = report(str(script), "--json", "mine", "-m")

    assert done.returncode == 0
    assert done.stdout == "out ['--json', 'mine', '-m'] __main__\n"
    assert done.stderr.startswith("err\n")


def test_a_module_runs_as_python_runs_it(script: Path) -> None:
    settings = {"PYTHONPATH": str(script.parent)}

    done = report("-m", "train", "argument", settings=settings)

    assert (done.returncode, done.stdout) == (0, "out ['argument'] __main__\n")


def test_the_table_has_a_row_for_the_function(script: Path) -> None:
    done = report(str(script), settings={"COLUMNS": "300"})

    table = done.stderr.splitlines()
    (row,) = (line for line in table if line.split()[:3] == ["step", "2", "2"])
    assert "type of the argument" in row
    assert "pass the same type of value in every call" in row
    assert any(f"{script}:4" in line for line in table)


def test_the_json_has_the_same_rows(script: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"

    report("--json", str(file), str(script))

    (row,) = json.loads(file.read_text())
    assert row.pop("lost_ms") > 0
    assert row == {
        "function": "step",
        "defined_at": f"{script}:4",
        "slow_dispatches": 2,
        "misses": 1,
        "entries": 2,
        "chief_cause": "type of the argument",
        "worst_call": f"{script}:8 (<module>)",
        "advice": "pass the same type of value in every call",
    }


ENDINGS = (
    # How the program ends, its exit status, what is on stderr before the report.
    ("sys.exit(3)", 3, ""),
    ("sys.exit()", 0, ""),
    ("sys.exit('no more')", 1, "no more\n"),
    (
        "1 / 0",
        1,
        'Traceback (most recent call last):\n  File "{0}", line 2, in <module>\n    1 / 0\n'
        "    ~~^~~\nZeroDivisionError: division by zero\n",
    ),
)


@pytest.mark.parametrize(("ending", "status", "said"), ENDINGS)
def test_the_program_ends_as_it_would_by_itself(
    ending: str, status: int, said: str, tmp_path: Path
) -> None:
    script = tmp_path / "ends.py"
    script.write_text(f"import sys\n{ending}\n")

    done = report(str(script))

    assert done.returncode == status
    assert done.stderr.startswith(said.format(script))
    assert "Slow dispatches of jitted functions" in done.stderr[len(said) :]


def test_the_programs_own_settings_are_read_when_it_imports_jax(tmp_path: Path) -> None:
    script = tmp_path / "sets.py"
    script.write_text(
        "import os\nos.environ['JAX_ENABLE_X64'] = '1'\nimport jax.numpy as jnp\n"
        "print(jnp.ones(1).dtype)\n"
    )

    assert report(str(script)).stdout == "float64\n"


REFUSED = (
    (["nothing_there.py"], "nothing_there.py: not found; name a script to run"),
    ([], "name a script, or a module with -m"),
    (["--json", "/no/such/folder/x.json", __file__],
     "/no/such/folder/x.json: No such file or directory; name a file to write"),
)  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=lambda value: str(value)[:30])
def test_bad_input_gets_one_line_and_the_program_does_not_run(
    arguments: list[str], said: str
) -> None:
    done = report(*arguments)

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(said)


EXAMPLES = ("equinox_loop", "nnx_train")


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("rule", ["0", "1"], ids=["without the rule", "with the rule"])
def test_a_real_training_loop_before_and_after(name: str, rule: str, tmp_path: Path) -> None:
    pytest.importorskip({"equinox_loop": "equinox", "nnx_train": "flax"}[name])
    file = tmp_path / "report.json"
    example = str(ROOT / "docs" / "examples" / f"{name}.py")

    done = report(
        "--json", str(file), example, settings={"JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": rule}
    )

    (step,) = (row for row in json.loads(file.read_text()) if row["function"] == "step")
    assert done.returncode == 0, done.stderr
    is_mended = rule == "1" or jaxlib.version.__version_info__ >= (0, 11)
    assert (step["slow_dispatches"], step["entries"]) == ((1, 1) if is_mended else (2, 2))
    assert step["chief_cause"] == (
        "" if is_mended else "sharding, same placement, spelled differently"
    )


def test_rows_add_up_and_the_costliest_comes_first() -> None:
    def dispatch(function: str, seconds: float, cause: str | None) -> jaxlib.pjit.Dispatch:
        return jaxlib.pjit.Dispatch(
            function, "f.py:1", f"{function}.py:{seconds}", seconds, 0, 0, 0, 2,
            cause is None, (), cause, 0,
        )  # fmt: skip

    found = [
        dispatch("cheap", 9.0, None),
        dispatch("cheap", 0.001, "a"),
        dispatch("dear", 1.0, "b"),
        dispatch("dear", 2.0, "c"),
        dispatch("dear", 1.5, "b"),
    ]

    rows = jaxlib.fastpath_report.rows(found)

    assert [(r.function, r.slow_dispatches, r.misses, r.lost_ms) for r in rows] == [
        ("dear", 3, 3, 4500.0),
        ("cheap", 2, 1, 1.0),
    ]
    assert (rows[0].chief_cause, rows[0].worst_call) == ("b", "dear.py:2.0")
