"""build.py's command line, and those of its modules that make no wheel."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from checks import demo
from checks.pytest_runs import in_parallel, tally_of
from machine import environments, pythons, system_packages
from paths import ROOT
from refusal import Refusal
from wheels import extensions

THIS = pythons.examine(sys.executable)
BUILD_PY = ROOT / "build" / "build.py"
BUILDS = pytest.mark.skipif(
    bool(system_packages.missing([])), reason="this machine has nothing to build with"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BUILD_PY), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(("wheel", "--wheel", "absent.whl"), "absent.whl: not found", marks=BUILDS),
        pytest.param(("wheel", "--wheel", __file__), f"{__file__}: is not a wheel", marks=BUILDS),
        pytest.param(
            ("overlay", "--site-packages", "absent", "--out", "out"),
            "absent: has no jaxlib",
            marks=BUILDS,
        ),
        (("wheel", "--python", "no-such-python"), "no-such-python: no such Python"),
        (("demo", "--python", "/bin/true"), "/bin/true: does not run as a Python"),
        *(
            ((command, "--wheel", "absent.whl"), "absent.whl: not found")
            for command in ("demo", "test", "bench")
        ),
    ],
)
def test_bad_input_ends_the_command_with_one_line(arguments: tuple[str, ...], says: str) -> None:
    done = run(*arguments)

    assert done.returncode == 1
    assert done.stdout == ""
    # The progress display prints the step that was running.
    *steps, last = done.stderr.splitlines()
    assert last.startswith("build.py: ") and says in last
    assert all(line.endswith("...") for line in steps)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "build.py: the following arguments are required: COMMAND"),
        (("sell",), "build.py: argument COMMAND: invalid choice: 'sell'"),
        (("overlay",), "build.py overlay: the following arguments are required: --site-packages"),
        (("wheel", "--fast"), "build.py: unrecognized arguments: --fast"),
        (("bench", "--platform", "tpu"), "build.py bench: argument --platform: invalid choice"),
        *(
            ((command, "--jaxlib", "new"), f"build.py {command}: argument --jaxlib: 'new' is not a")
            for command in ("demo", "wheel", "wheelhouse")
        ),
        (("demo", "--jaxlib", ""), "build.py demo: argument --jaxlib: '' is not a version"),
        (
            ("wheelhouse", "--python", "cp311", "3.13"),
            "build.py wheelhouse: argument --python: '3.13' is not the tag of a Python",
        ),
    ],
)
def test_a_wrong_command_line_ends_with_one_line(arguments: tuple[str, ...], says: str) -> None:
    done = run(*arguments)

    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith(says) and line.endswith("--help")


def test_help_is_given_before_anything_is_installed(tmp_path: Path) -> None:
    for name in ("build", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    command = [sys.executable, str(tmp_path / "build" / "build.py"), "--help"]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0
    assert not (tmp_path / ".build").exists()


def test_this_python_is_examined() -> None:
    assert THIS.version == sys.version_info[:2]
    assert THIS.path == Path(sys.executable)
    assert THIS.abi.startswith(THIS.target.name)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"implementation": "pypy"}, "is pypy 3.11"),
        ({"version": [3, 9]}, "is cpython 3.9"),
        ({"system": "Darwin"}, "runs on Darwin x86_64"),
        ({"machine": "riscv64"}, "runs on Linux riscv64"),
    ],
)
def test_a_python_that_jaxlib_has_no_wheel_for_is_refused(
    facts: dict, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = {
        "implementation": "cpython",
        "version": [3, 11],
        "system": "Linux",
        "machine": "x86_64",
    }
    monkeypatch.setattr(pythons, "_probe", lambda _: sound | facts)

    with pytest.raises(Refusal, match=says):
        pythons.examine(sys.executable)


def test_a_child_process_gets_no_settings_of_jax_and_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYTHONPATH", "JAX_PLATFORMS", "XLA_FLAGS", "UNRELATED"):
        monkeypatch.setenv(name, "set")

    kept = pythons.clean_environment()

    assert kept["UNRELATED"] == "set"
    assert not {"PYTHONPATH", "JAX_PLATFORMS", "XLA_FLAGS"} & kept.keys()


def test_a_missing_system_package_is_found_by_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    bare = THIS._replace(
        base=Path("/usr/bin/python3.11"),
        version=(3, 11),
        has_headers=False,
        has_ensurepip=False,
    )

    assert system_packages.missing([bare, bare]) == [
        "bazel-bootstrap",
        "g++",
        "googletest",
        "libabsl-dev",
        "python3.11-dev",
        "python3.11-venv",
    ]


def test_with_a_finished_wheel_a_bare_machine_lacks_only_ensurepip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    bare = THIS._replace(base=Path("/usr/bin/python3.11"), version=(3, 11), has_headers=False)

    lacking = [
        system_packages.missing([bare._replace(has_ensurepip=has)], builds=False)
        for has in (True, False)
    ]

    assert lacking == [[], ["python3.11-venv"]]


def test_a_python_that_was_built_by_hand_needs_headers() -> None:
    bare = THIS._replace(base=Path("/opt/python/bin/python3"), has_headers=False)

    with pytest.raises(Refusal, match=r"lacks Python\.h"):
        system_packages.missing([bare])


def test_without_root_the_command_to_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "apt-get", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(Refusal, match=r"run: sudo sh -c 'apt-get update .* g\+\+'"):
        system_packages.install(["g++"])


@pytest.mark.parametrize("root", [True, False])
def test_packages_are_named_and_installed_as_root_or_through_sudo(
    root: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    program(tmp_path, "apt-get", 'echo "apt-get $@"')
    program(tmp_path, "sudo", 'shift; echo sudo; "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)

    system_packages.install(["g++", "googletest"])

    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "Installing system packages: g++ googletest"
    assert lines[-1].endswith("--no-install-recommends g++ googletest")
    assert ("sudo" in lines) != root


def test_a_failed_installation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "apt-get", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(Refusal, match="installing system packages failed"):
        system_packages.install(["g++"])


def test_an_environment_is_made_once_for_the_same_requirements(tmp_path: Path) -> None:
    directory = tmp_path / "venv"
    python = environments.environment(directory, THIS, ["pip"])
    before = python.lstat().st_ino

    environments.environment(directory, THIS, ["pip"])

    assert python.lstat().st_ino == before
    assert environments.is_made(directory, THIS, ["pip"])
    assert not environments.is_made(directory, THIS, ["pip", "wheel"])


def test_two_environments_of_one_name_are_made_at_the_same_time(tmp_path: Path) -> None:
    folders = [tmp_path / "a" / "trial", tmp_path / "b" / "trial"]

    pythons = in_parallel(lambda folder: environments.environment(folder, THIS, ["pip"]), folders)

    assert pythons == [folder / "bin" / "python" for folder in folders]


def test_a_file_with_the_same_content_is_the_same_input(tmp_path: Path) -> None:
    directory, requirements = tmp_path / "venv", tmp_path / "requirements.txt"
    requirements.write_text("pip\n")
    environments.environment(directory, THIS, [requirements])

    requirements.touch()
    assert environments.is_made(directory, THIS, [requirements])
    requirements.write_text("pip\n# and a word\n")
    assert not environments.is_made(directory, THIS, [requirements])


@pytest.mark.parametrize("free_threaded", [False, True])
def test_nothing_is_compiled_for_a_python_without_the_gil(
    free_threaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(environments, "_uv", lambda words, log: commands.append(words))
    (tmp_path / "venv").mkdir()
    monkeypatch.setattr(environments.shutil, "rmtree", lambda *_, **__: None)

    python = THIS._replace(free_threaded=free_threaded)
    environments.environment(tmp_path / "venv", python, ["numpy"])

    assert ("--only-binary=:all:" in commands[1]) is free_threaded


def test_a_failed_pip_install_is_refused_in_one_line(tmp_path: Path) -> None:
    wheel = tmp_path / "broken-1.0-py3-none-any.whl"
    wheel.write_text("no wheel")

    with pytest.raises(Refusal, match=r"uv pip install failed: error: .*cause: ") as refused:
        environments.environment(tmp_path / "venv", THIS, [wheel])

    assert "\n" not in str(refused.value)
    assert not environments.is_made(tmp_path / "venv", THIS, [wheel])


def test_a_failed_build_shows_the_compilers_own_error(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(
        "INFO: Analyzed 2 targets\n"
        "ERROR: jaxlib/BUILD:7:1: C++ compilation failed: gcc failed: error executing command\n"
        "jaxlib/pjit.cc:12:3: error: 'x' was not declared in this scope\n"
    )

    assert extensions.first_error(log).startswith("jaxlib/pjit.cc:12:3: error:")


def test_reports_are_added_up() -> None:
    report = """<?xml version="1.0"?><testsuites>
      <testsuite tests="5" failures="1" errors="1" skipped="1"/>
      <testsuite tests="2" failures="0" errors="0" skipped="0"/>
    </testsuites>"""

    assert tally_of(report) == (4, 2, 1)


def row(case: str, entries: list[int], goal: list[int]) -> dict:
    return {
        "section": 1,
        "case": case,
        "run": "cold",
        "entries": entries,
        "goal": goal,
        "traces": 1,
        "goal_traces": 1,
        "spec": "P(None,)",
        "outcome": "ok",
        "goal_outcome": "ok",
        "slow_ms": 1.5,
        "steady_ms": 0.25,
        "ok": entries == goal,
    }


def report(entries: list[int], *, fixed: bool = True) -> dict:
    rows = [row("key", entries, [1, 1, 1])]
    facts = {"jax": "1.0", "jaxlib": "1.0", "device": "cpu", "devices": 4, "left_out": []}
    return facts | {"fixed": fixed, "rows": rows, "ok": rows[0]["ok"]}


def test_the_demo_shows_stock_ours_and_the_goal(capsys: pytest.CaptureFixture[str]) -> None:
    demo.show(report([1, 1, 2], fixed=False), report([1, 1, 1]))

    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(" key"))
    assert " ".join(line.split()) == (
        "key cold 1 1 1 1 1 2 1 1 1 1/1 P(None,) P(None,) 1.50 / 0.25 1.50 / 0.25"
    )


@pytest.mark.parametrize(
    ("ours", "status", "says"),
    [
        (report([1, 1, 1]), 0, "Ours reaches the goal in every row"),
        (report([1, 1, 2]), 1, "ours misses the goal: section 1, key cold"),
        (report([1, 1, 1], fixed=False), 1, "the fix is not on"),
    ],
)
def test_the_demo_fails_if_ours_misses_the_goal(
    ours: dict, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.judge(ours, Path("ours.whl")) == status

    assert says in "".join(capsys.readouterr())
