"""The seconds that a process or a thread of a test may take: 300, or TIMEOUT_S.

Set it higher for an emulator or a sanitizer. It only says when to give up: a test that ends in time
does not depend on it. Standard library only.
"""

from __future__ import annotations

import os

_DEFAULT = "300"


def _seconds(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise SystemExit(
            f"TIMEOUT_S={text}: is not a number of seconds; give one such as {_DEFAULT}"
        )
    return int(text)


TIMEOUT_S = _seconds(os.environ.get("TIMEOUT_S", _DEFAULT))
