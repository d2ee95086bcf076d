"""`python -m jaxlib.fastpath_report`: the program unharmed, and what the report says of it."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import signal
import subprocess
import weakref
from pathlib import Path

import jaxlib.fastpath_report
import jaxlib.pjit
import pytest

import interpreters
from libraries import imported
from paths import ROOT

TITLE = "Slow dispatches of jitted functions"

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
        ["-m", "jaxlib.fastpath_report", *arguments], settings=settings, devices=2, cwd=ROOT
    )


def assert_runs_as_by_itself(
    *arguments: str, settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The same status and output as without the report, and then the report."""
    by_itself = interpreters.run([*arguments], settings=settings, devices=2)
    done = report(*arguments, settings=settings)
    assert (done.returncode, done.stdout) == (by_itself.returncode, by_itself.stdout)
    said = len(by_itself.stderr)
    assert done.stderr[:said] == by_itself.stderr
    assert done.stderr[said:].lstrip().startswith(TITLE)
    return by_itself


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
    (row,) = (line for line in table if line.split()[:4] == ["step", "1", "2", "2"])
    assert "type of the argument" in row
    assert "To mend step: pass the same type of value in every call" in table
    assert any(f"{script}:4" in line for line in table)


@pytest.mark.parametrize("columns", [80, 66])
def test_the_table_cuts_nothing_in_a_narrow_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = jaxlib.fastpath_report.Row(
        "step", "/home/someone/a_project/with_a_long_name/train.py:123", 10, 1234, 1224, 1224,
        1234567.8, "sharding, same placement, spelled differently",
        "/home/someone/a_project/with_a_long_name/train.py:456 (main)",
        "write P(None, 'data') for it wherever it is placed",
    )  # fmt: skip

    def shown(columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        jaxlib.fastpath_report.show([row])
        return capsys.readouterr().err.splitlines()

    (*narrow, advice), (*wide, _) = shown(columns), shown(400)

    assert advice == f"To mend step: {row.advice}"  # not folded, to be copied from
    (second,) = (line.index("functions") for line in narrow if "functions " in line[:30])
    assert f"step{row.defined_at}" in "".join(line[:second].strip() for line in narrow)
    assert max(map(len, narrow)) == columns
    texts = ["".join(table).replace(" ", "").replace("─", "") for table in (narrow, wide)]
    assert sorted(texts[0]) == sorted(texts[1])


def test_the_json_has_the_same_rows(script: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"

    report("--json", str(file), str(script))

    (row,) = json.loads(file.read_text())
    assert row.pop("lost_ms") > 0
    assert row == {
        "function": "step",
        "defined_at": f"{script}:4",
        "functions": 1,
        "slow_dispatches": 2,
        "misses": 1,
        "entries": 2,
        "chief_cause": "type of the argument",
        "worst_call": f"{script}:8 (<module>)",
        "advice": "pass the same type of value in every call",
    }


HOOK = """
def hook(kind, error, frames):
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(frames)]
    print("hook:", kind, error, names, sys.excepthook is hook)
    print(frames is error.__traceback__ is sys.last_traceback)
    {0}
sys.excepthook = hook
def fails():
    1 / 0
fails()
"""

# How the program ends, and its exit status.
ENDINGS = (
    ("sys.exit(3)", 3),
    ("sys.exit()", 0),
    ("sys.exit('no more')", 1),
    ("1 / 0", 1),
    ("def fails():\n    1 / 0\ntry:\n    fails()\nexcept Exception:\n    raise OSError", 1),
    ("def no syntax", 1),
    ("import jax\njax.jit(lambda x: x + 'a')(1)", 1),
    (HOOK.format("pass"), 1),
    (HOOK.format("raise OSError"), 1),
    (HOOK.format("sys.exit(5)"), 5),
    ("sys.excepthook = None\n1 / 0", 1),
    ("raise KeyboardInterrupt", -signal.SIGINT),
    ("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)", -signal.SIGINT),
    ("class Own(KeyboardInterrupt):\n    pass\nraise Own", 1),
    ("atexit.register(int, 'one')\nsys.exit(3)", 3),
    ("threading.Thread(target=lambda: 1 / 0, name='one').start()", 0),
    ("sys.stdout.close()", 0),
)


@pytest.mark.parametrize("way", ["script", "module"])
@pytest.mark.parametrize(("ending", "status"), ENDINGS)
def test_the_program_ends_as_by_itself(ending: str, status: int, way: str, tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    # What starts the tests may have SIGINT ignored, as a shell does in the background.
    script.write_text(
        "import atexit, os, signal, sys, threading, time, traceback\n"
        f"signal.signal(signal.SIGINT, signal.default_int_handler)\n{ending}\n"
    )
    arguments = [str(script)] if way == "script" else ["-m", "ends"]
    settings = {"PYTHONPATH": str(tmp_path)}

    by_itself = assert_runs_as_by_itself(*arguments, settings=settings)

    assert by_itself.returncode == status


@pytest.mark.parametrize("name", ["no_such_module", "json", "json.no_such", "os.no_such"])
def test_a_module_that_does_not_run_is_told_of_as_by_itself(name: str) -> None:
    assert assert_runs_as_by_itself("-m", name).returncode == 1


FACTS = """
import atexit, sys, threading
def facts():
    is_main = vars(sys.modules["__main__"]) is globals()
    print(sys.argv, sys.path, __name__, __package__, __spec__ is None, type(__loader__))
    print(is_main, __builtins__)
def late():
    threading.main_thread().join()
    facts()
facts()
def noted(x: 1 + 1):
    pass
print(__file__, __cached__, noted.__annotations__)
threading.Thread(target=late).start()
atexit.register(facts)
"""

WAYS = (
    ["{0}/program.py", "argument", "-m"],
    ["-m", "program", "argument"],
    ["{0}/other/link.py"],
    ["{0}/program.pyc"],
    ["{0}/folder"],
    ["{0}/packed.zip"],
)


@pytest.mark.parametrize("safe_path", ["", "1"], ids=["", "safe path"])
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_the_program_is_main_to_its_very_end(
    way: list[str], safe_path: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    for path in (program, tmp_path / "folder" / "__main__.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(FACTS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.py").symlink_to(program)
    py_compile.compile(str(program), str(tmp_path / "program.pyc"))
    shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "folder")
    settings = {"PYTHONPATH": str(tmp_path) if "-m" in way[:1] else ""}
    arguments = [argument.format(tmp_path) for argument in way]

    by_itself = assert_runs_as_by_itself(
        *arguments, settings={**settings, "PYTHONSAFEPATH": safe_path}
    )

    assert by_itself.returncode == 0
    assert by_itself.stdout.count("True <module 'builtins' (built-in)>") == 3


LINGERS = """
import atexit, threading
import jax
@jax.jit
def step(x):
    return x
def late():
    threading.main_thread().join()
    step(1)
atexit.register(lambda: step(True))
threading.Thread(target=late).start()
step(1.0)
"""


def test_the_report_has_what_comes_after_the_programs_text(tmp_path: Path) -> None:
    script, file = tmp_path / "lingers.py", tmp_path / "report.json"
    script.write_text(LINGERS)

    done = report("--json", str(file), str(script))

    (row,) = json.loads(file.read_text())
    assert done.returncode == 0
    assert (row["slow_dispatches"], row["misses"], row["entries"]) == (3, 2, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_process_does_not_report(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import os, sys\nchild = os.fork()\nif not child:\n    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )

    done = report(str(script))

    assert (done.returncode, done.stdout) == (0, "7\n")
    assert done.stderr.count(TITLE) == 1


def test_a_report_that_can_not_be_written_gets_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    script = tmp_path / "removes.py"
    script.write_text(f"import shutil, sys\nshutil.rmtree({str(folder)!r})\nsys.exit(3)\n")

    done = report("--json", str(folder / "report.json"), str(script))

    line, table = done.stderr.split("\n", 1)
    assert done.returncode == 3
    assert line == f"fastpath_report: {folder}/report.json: No such file or directory"
    assert table.lstrip().startswith(TITLE)


def test_the_programs_own_settings_are_read_when_it_imports_jax(tmp_path: Path) -> None:
    script = tmp_path / "sets.py"
    script.write_text(
        "import os\nos.environ['JAX_ENABLE_X64'] = '1'\nimport jax.numpy as jnp\n"
        "print(jnp.ones(1).dtype)\n"
    )

    assert report(str(script)).stdout == "float64\n"


def test_options_after_the_module_are_the_program_s(script: Path) -> None:
    settings = {"PYTHONPATH": str(script.parent)}

    done = report("-m", "train", "--lr", "0.1", "--json", "-m", settings=settings)

    assert done.stdout == "out ['--lr', '0.1', '--json', '-m'] __main__\n"


def test_a_program_with_a_rich_of_its_own_has_no_table_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("")
    script = tmp_path / "poor.py"
    script.write_text("print(__annotations__)\n")

    done = report(str(script))

    assert (done.returncode, done.stdout) == (0, "{}\n")
    assert done.stderr.startswith("fastpath_report: no table: cannot import name 'box' from 'rich'")


def test_a_program_without_slow_dispatches_has_no_table(tmp_path: Path) -> None:
    script = tmp_path / "quiet.py"
    script.write_text("")

    assert report(str(script)).stderr == f"{TITLE}: none\n"


REFUSED = (
    (["-m"], "-m: name a module to run"),
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
    imported({"equinox_loop": "equinox", "nnx_train": "flax.nnx"}[name])
    file = tmp_path / "report.json"
    example = f"docs/examples/{name}.py"

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
    assert step["worst_call"].rpartition(":")[0] == ("" if is_mended else example)


def dispatch(
    function: str, seconds: float, cause: str | None, number: int = 1
) -> jaxlib.pjit.Dispatch:
    """A function's first dispatch, or one with a cause."""
    return jaxlib.pjit.Dispatch(
        function, number, "f.py:1", f"{function}.py:{seconds}", seconds, 0, 0, 0, 2,
        cause is None, (), cause, 0,
    )  # fmt: skip


def rows_of(dispatches: list[jaxlib.pjit.Dispatch]) -> list[jaxlib.fastpath_report.Row]:
    report = jaxlib.fastpath_report.Report()
    for each in dispatches:
        report.add(each)
    return report.rows()


def test_a_report_keeps_no_dispatch() -> None:
    report = jaxlib.fastpath_report.Report()
    added = dispatch("f", 1.0, "a")
    reference = weakref.ref(added)

    report.add(added)
    del added

    assert reference() is None


def test_rows_add_up_and_the_costliest_comes_first() -> None:
    found = [
        dispatch("cheap", 9.0, None),
        dispatch("cheap", 0.001, "a"),
        dispatch("dear", 1.0, "b"),
        dispatch("dear", 2.0, "c"),
        dispatch("dear", 1.5, "b"),
    ]

    rows = rows_of(found)

    assert [(r.function, r.slow_dispatches, r.misses, r.lost_ms) for r in rows] == [
        ("dear", 3, 3, 4500.0),
        ("cheap", 2, 1, 1.0),
    ]
    assert (rows[0].chief_cause, rows[0].worst_call) == ("b", "dear.py:2.0")


ONCE = "if they are one, call jax.jit once, outside the loop"

# The seconds and cause of each dispatch of a place, a first one without a cause, and the number of
# its function. Of its row:
# functions, misses, ms lost, the chief cause, the worst call, the advice.
PLACES = (
    ([(9, None, 1)], (1, 0, 0, "", "", "")),
    ([(9, None, 1), (8, None, 1)], (1, 0, 0, "", "", "")),  # in two threads at once
    (
        [(9, None, 1), (2, None, 2)],
        (2, 0, 2000, "jitted anew: 2 functions from one place", "f.py:2", ONCE),
    ),
    (
        [(1, None, 1), (8, "a", 1), (4, None, 2), (5, None, 3), (2, "b", 3)],
        (3, 2, 19000, "jitted anew: 3 functions from one place", "f.py:8", ONCE),
    ),
    ([(9, None, 1), (3, "a", 1), (2, None, 2), (1, "b", 2)], (2, 2, 6000, "a", "f.py:3", "")),
    ([(4, "a", 1), (9, None, 1), (1, "a", 1)], (1, 2, 5000, "a", "f.py:4", "")),
    ([(2, "a", 1), (3, "a", 1)], (1, 2, 5000, "a", "f.py:3", "")),
)


@pytest.mark.parametrize(("dispatches", "told"), PLACES)
def test_functions_of_one_place_are_one_that_is_jitted_anew(
    dispatches: list[tuple[float, str | None, int]], told: tuple[int, int, float, str, str, str]
) -> None:
    (row,) = rows_of([dispatch("f", *of_it) for of_it in dispatches])

    figures = (row.functions, row.misses, row.lost_ms)
    assert (*figures, row.chief_cause, row.worst_call, row.advice) == told
    assert row.slow_dispatches == len(dispatches)


def test_a_function_that_is_jitted_in_a_loop(tmp_path: Path) -> None:
    script, file = tmp_path / "anew.py", tmp_path / "report.json"
    script.write_text("import jax\nfor _ in range(30):\n    jax.jit(lambda x: x)(1.0)\n")

    report("--json", str(file), str(script))

    (row,) = json.loads(file.read_text())
    assert row.pop("lost_ms") > 0
    assert row == {
        "function": "<lambda>",
        "defined_at": f"{script}:3",
        "functions": 30,
        "slow_dispatches": 30,
        "misses": 0,
        "entries": 1,
        "chief_cause": "jitted anew: 30 functions from one place",
        "worst_call": f"{script}:3 (<module>)",
        "advice": ONCE,
    }
