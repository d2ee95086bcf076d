"""How many seconds a process or a thread of a test may take: 300, or what TIMEOUT_S says.

Set it higher where all is slow: under an emulator, or a sanitizer. It only says when to give up, so
no test passes or fails by it that ends. Standard library only.
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
