"""`build.py conformance`: the files that it runs, the differences, and the exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks import conformance
from checks.pytest_runs import Outcome
from paths import ALLOWED_DIFFERENCES
from refusal import Refusal

SIDES = ["stock", "ours"]
PASSED, FAILED = Outcome("passed"), Outcome("failed", "assert P() == P(None)")
CRASHED = {"(the whole file)": Outcome("crashed")}
ALLOWED = {"a_test.py::test_x"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path in ("tests/a_test.py", "tests/b_test.py", "jax/version.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text('_version = "0.10.2"\n')
    return tmp_path


def test_a_file_that_is_named_twice_runs_once(checkout: Path) -> None:
    files = conformance.test_files(checkout, ["b", "a", "b"])

    assert [file.name for file in files] == ["b_test.py", "a_test.py"]


def test_a_folder_that_is_not_a_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="has no folder tests"):
        conformance.test_files(tmp_path, ["a"])


def test_a_missing_test_file_is_refused(checkout: Path) -> None:
    with pytest.raises(Refusal, match=r"tests/c_test\.py: not found"):
        conformance.test_files(checkout, ["a", "c"])


def test_a_checkout_of_another_release_is_refused(checkout: Path) -> None:
    conformance.check_version(checkout, "0.10.2")

    with pytest.raises(Refusal, match=r"is jax 0\.10\.2"):
        conformance.check_version(checkout, "0.9.2")


def test_the_page_names_the_tests_that_may_differ() -> None:
    allowed = conformance.allowed_differences(ALLOWED_DIFFERENCES.read_text())

    assert allowed == {"pjit_test.py::ArrayPjitTest::test_partial_sharded_prng_key_inp"}


@pytest.mark.parametrize(
    ("stock", "ours", "status", "says"),
    [
        ({"test_x": PASSED}, {"test_x": PASSED}, 0, "1 tests, 0 differ"),
        ({"test_x": FAILED}, {"test_x": FAILED}, 0, "1 tests, 0 differ"),
        ({"test_x": PASSED}, {"test_x": FAILED}, 0, "a_test.py::test_x: differs, which is allowed"),
        ({"test_y": PASSED}, {"test_y": FAILED}, 1, "ours: failed: assert P() == P(None)"),
        ({"test_y": FAILED}, {"test_y": PASSED}, 1, "1 tests, 1 differ, 1 of them not allowed"),
        ({"test_y": PASSED}, {}, 1, "ours: absent"),
        ({"test_y": PASSED}, CRASHED, 1, "a_test.py: pytest ended without a report"),
        (CRASHED, CRASHED, 1, "a_test.py: pytest ended without a report"),
    ],
)
def test_a_difference_that_is_not_allowed_fails(
    stock: dict, ours: dict, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conformance.judge(SIDES, {"a_test.py": [stock, ours]}, ALLOWED) == status

    assert says in capsys.readouterr().out


def test_the_counts_of_each_side_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    conformance.show(
        SIDES, {"a_test.py": [{"test_x": PASSED}, {"test_x": FAILED}], "b": [CRASHED] * 2}
    )

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "a_test.py 1 / 0 / 0 0 / 1 / 0 1" in lines
    assert "b no report no report 0" in lines
