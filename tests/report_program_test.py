"""`python -m jaxlib.fastpath_report`: the program runs as by itself, to its very end."""

from __future__ import annotations

import os
import py_compile
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import interpreters
from reports import TITLE, report, rows

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


def assert_runs_as_by_itself(
    *arguments: str, settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Asserts the status and output of the program without the report, and then the report."""
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


def test_the_program_gets_its_own_arguments_and_output(script: Path) -> None:
    done = report(str(script), "--json", "mine", "-m")

    assert done.returncode == 0
    assert done.stdout == "out ['--json', 'mine', '-m'] __main__\n"
    assert done.stderr.startswith("err\n")


def test_a_module_runs_as_python_runs_it(script: Path) -> None:
    settings = {"PYTHONPATH": str(script.parent)}

    done = report("-m", "train", "argument", settings=settings)

    assert (done.returncode, done.stdout) == (0, "out ['argument'] __main__\n")


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
    # Python 3.14 ends by SIGINT here, too.
    (
        "class Own(KeyboardInterrupt):\n    pass\nraise Own",
        -signal.SIGINT if sys.version_info >= (3, 14) else 1,
    ),
    ("atexit.register(int, 'one')\nsys.exit(3)", 3),
    ("threading.Thread(target=lambda: 1 / 0, name='one').start()", 0),
    ("sys.stdout.close()", 0),
)


@pytest.mark.parametrize("way", ["script", "module"])
@pytest.mark.parametrize(("ending", "status"), ENDINGS)
def test_the_program_ends_as_by_itself(ending: str, status: int, way: str, tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    # A shell starts background commands with SIGINT ignored.
    script.write_text(
        "import atexit, os, signal, sys, threading, time, traceback\n"
        f"signal.signal(signal.SIGINT, signal.default_int_handler)\n{ending}\n"
    )
    arguments = [str(script)] if way == "script" else ["-m", "ends"]
    settings = {"PYTHONPATH": str(tmp_path)}

    by_itself = assert_runs_as_by_itself(*arguments, settings=settings)

    assert by_itself.returncode == status


@pytest.mark.parametrize("name", ["no_such_module", "json", "json.no_such", "os.no_such"])
def test_a_module_that_cannot_run_has_the_same_error_as_by_itself(name: str) -> None:
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


def test_the_report_includes_dispatches_after_the_programs_text(tmp_path: Path) -> None:
    script = tmp_path / "lingers.py"
    script.write_text(LINGERS)

    (row,) = rows(str(script))["functions"]

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


def test_a_report_that_cannot_be_written_gets_one_line(tmp_path: Path) -> None:
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
