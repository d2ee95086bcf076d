"""The settings that depend on the installed Bazel."""

from __future__ import annotations

from pathlib import Path

import pytest

from machine import bazel
from refusal import Refusal

NO_MODULES = "common --noenable_bzlmod\n"


@pytest.mark.parametrize(
    ("says", "wanted"),
    [
        ("bazel no_version\n", ""),  # Debian's 4.2.3
        ("bazel 4.2.3\n", ""),
        ("bazel 6.5.0\n", ""),
        ("bazel 7.7.1\n", NO_MODULES),  # Debian's
        ("bazel 10.0.0\n", NO_MODULES),
    ],
)
def test_modules_are_switched_off_if_bazel_has_them_on(says: str, wanted: str) -> None:
    assert bazel.settings(says) == wanted


def bazel_that(folder: Path, does: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a program named bazel first on PATH, and returns the path of its settings."""
    program = folder / "bazel"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(bazel, "BAZEL_SETTINGS", folder / "state" / "bazel.bazelrc")
    return folder / "state" / "bazel.bazelrc"


def test_the_settings_follow_a_bazel_that_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for version in ("7.7.1", "no_version"):
        settings = bazel_that(tmp_path, f"echo bazel {version}", monkeypatch)
        bazel.write_settings()
        said.append(settings.read_text())

    assert said == [NO_MODULES, ""]


def test_a_bazel_that_cannot_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = bazel_that(tmp_path, "echo no java >&2; exit 1", monkeypatch)

    with pytest.raises(Refusal, match=r"^bazel --version failed: no java$"):
        bazel.write_settings()

    assert not settings.exists()
