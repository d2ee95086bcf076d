"""Writes the settings that only some versions of Bazel understand.

`.bazelrc` imports the file, so that a `bazel test` by hand has them, too.
"""

from __future__ import annotations

import re
import subprocess

from paths import BAZEL_SETTINGS
from refusal import Refusal, refusing_os_errors

_MODULES_ARE_DEFAULT = 7  # the first version with bzlmod on


def write_settings() -> None:
    """Writes the file, unless it is up to date.

    Raises:
      Refusal: Bazel does not run, or the file cannot be written.
    """
    with refusing_os_errors("run bazel --version"):
        asked = subprocess.run(["bazel", "--version"], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise Refusal(f"bazel --version failed: {asked.stderr}")
    wanted = settings(asked.stdout)
    with refusing_os_errors(f"write {BAZEL_SETTINGS}"):
        if not BAZEL_SETTINGS.is_file() or BAZEL_SETTINGS.read_text() != wanted:
            BAZEL_SETTINGS.parent.mkdir(parents=True, exist_ok=True)
            BAZEL_SETTINGS.write_text(wanted)


def settings(version: str) -> str:
    """The file's content for an output of `bazel --version`. Debian's Bazel 4 prints no number."""
    number = re.search(r"\d+", version)
    if number and int(number[0]) >= _MODULES_ARE_DEFAULT:
        return "common --noenable_bzlmod\n"
    return ""
