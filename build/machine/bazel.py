"""Settings that this machine's Bazel needs and another version would not understand.

`.bazelrc` reads it from a file that is written here, so that a `bazel test` by hand has it too.
"""

from __future__ import annotations

import re
import subprocess

from paths import BAZEL_SETTINGS
from refusal import Refusal, refusing_os_errors

_MODULES_ARE_DEFAULT = 7  # the first version of Bazel where they are


def write_settings() -> None:
    """Writes the file, if it is not there as it should be.

    Raises:
      Refusal: there is no Bazel that runs, or the file cannot be written.
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
    """The file's content for a Bazel that says this of itself; Debian's Bazel 4 says no number."""
    number = re.search(r"\d+", version)
    if number and int(number[0]) >= _MODULES_ARE_DEFAULT:
        return "common --noenable_bzlmod\n"
    return ""
