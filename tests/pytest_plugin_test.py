"""The pytest fixture `no_fastpath_misses`, which our wheel installs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import interpreters

TESTS = """
import jax, pytest

def misses():
    step = jax.jit(lambda x: x)
    for x in (1.0, 1, 1, 1.0, True):
        step(x)

def hits():
    step = jax.jit(lambda x: x)
    for _ in range(3):
        step(1.0)

@pytest.mark.no_fastpath_misses
def test_marked_misses(): misses()

def test_used_misses(no_fastpath_misses): misses()

@pytest.mark.no_fastpath_misses
def test_marked_hits(): hits()

def test_used_hits(no_fastpath_misses): hits()

def test_without_it(): misses()

@pytest.mark.no_fastpath_misses
def test_fails_itself():
    misses()
    assert "its own" == "failure"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Runs pytest on the tests, with no option that names the plugin."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "steps_test.py").write_text(TESTS)
    return interpreters.run(
        ["-m", "pytest", "-v", "--strict-markers", "-p", "no:cacheprovider", "steps_test.py"],
        cwd=folder,
    )


def outcome_of(run: subprocess.CompletedProcess[str], test: str) -> str:
    (line,) = (
        line for line in run.stdout.splitlines() if line.startswith(f"steps_test.py::{test}")
    )
    return line.split()[1]


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("test_marked_misses", "FAILED"),
        ("test_used_misses", "FAILED"),
        ("test_marked_hits", "PASSED"),
        ("test_used_hits", "PASSED"),
        ("test_without_it", "PASSED"),
        ("test_fails_itself", "FAILED"),
    ],
)
def test_a_test_with_the_fixture_and_a_miss_fails(
    test: str, outcome: str, run: subprocess.CompletedProcess[str]
) -> None:
    assert outcome_of(run, test) == outcome


def section_of(run: subprocess.CompletedProcess[str], test: str) -> str:
    """pytest's section about the failure of a test."""
    after = run.stdout.partition(f"_ {test} _")[2]
    return after.partition("____\n")[2].split("\n____", 1)[0]


def test_the_failure_has_the_explanations_and_no_traceback(
    run: subprocess.CompletedProcess[str],
) -> None:
    lines = section_of(run, "test_marked_misses").splitlines()

    assert lines[0].startswith("FASTPATH CACHE MISS at steps_test.py:7 (misses) costing ")
    assert lines[2] == "  x: type of the argument: was float, now int"
    assert lines[-1].startswith("  2 times, ")


def test_a_failure_of_the_test_itself_is_unchanged(
    run: subprocess.CompletedProcess[str],
) -> None:
    assert "AssertionError: assert 'its own' == 'failure'" in section_of(run, "test_fails_itself")


def test_the_plugin_imports_no_jax_unless_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "plain_test.py").write_text(
        "import sys\ndef test_plain():\n"
        "    assert not {'jax', 'jaxlib.pjit'} & sys.modules.keys()\n"
    )

    done = interpreters.run(["-m", "pytest", "-q", "plain_test.py"], cwd=tmp_path)

    assert done.returncode == 0, done.stdout


def test_the_plugin_is_installed(tmp_path: Path) -> None:
    done = interpreters.run(["-m", "pytest", "--markers"], cwd=tmp_path)

    assert "@pytest.mark.no_fastpath_misses: fail if a call" in done.stdout
