"""The error that is meant for the user.

Its text is a single line: what is wrong, in which file, and what to do about it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class Refusal(Exception):
    """Bad input or a machine that lacks something: reported in one line, never as a traceback."""

    def __init__(self, message: str) -> None:
        # A file name in it may contain control characters, which a terminal would obey.
        shown = (each if each.isprintable() else "\ufffd" for each in " ".join(message.split()))
        super().__init__("".join(shown))


_ADVICE = {
    errno.ENOSPC: "no space left: free some, or choose another folder",
    errno.EDQUOT: "disk quota reached: free some space, or choose another folder",
    errno.EACCES: "no permission: choose another folder, or change its owner",
    errno.EPERM: "no permission: choose another folder, or change its owner",
    errno.EROFS: "read-only file system: choose another folder",
    errno.ENOTDIR: "a part of the path is a file: choose another folder",
    errno.EEXIST: "something of that name is in the way: choose another folder",
}


@contextmanager
def refusing_os_errors(doing: str) -> Iterator[None]:
    """Turns an operating system error into a Refusal that says what was being done."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, error.strerror or str(error))
        raise Refusal(f"cannot {doing}: {advice}") from error
