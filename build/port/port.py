"""`build.py port`: applies the fix to a checkout of jax, whose own build then includes it.

Standard library only.
"""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from port import anchors
from refusal import Refusal, refusing_os_errors

VERSION = "jax/version.py"

Texts = Mapping[str, "str | None"]  # a file's path in the checkout, and its text or None


def port(
    source: Path,
    parts: Sequence[str] = anchors.PARTS,
    *,
    check: bool = False,
    revert: bool = False,
    force: bool = False,
) -> None:
    """Makes or undoes parts of the change in a checkout, or shows what it would change.

    Raises:
      Refusal: it is not a clean checkout of a jax with the known layout. Nothing changes then.
    """
    edits = anchors.edits(_require_jax(source), parts)
    _require_files(source, [edit.file for edit in edits])
    ours = anchors.new_files(parts)
    before = _texts(source, [*(edit.file for edit in edits), *ours])
    after = _changed(before, edits, ours, revert, force)
    changes = {name: text for name, text in after.items() if text != before[name]}
    if not changes:
        print(f"{source}: the port {'is not there' if revert else 'is there already'}")
        return
    if check:
        print(
            "".join(_difference(name, before[name], after[name]) for name in sorted(changes)),
            end="",
        )
        return
    if not (force or revert):
        _require_clean(source)
    _write(source, changes)
    for name in sorted(changes):
        print(f"{_verb(before[name], after[name])} {name}")


def _verb(before: str | None, after: str | None) -> str:
    return "added  " if before is None else "removed" if after is None else "changed"


def _git(source: Path, *arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(source), *arguments], capture_output=True, text=True, check=True
        ).stdout
    except FileNotFoundError as error:
        raise Refusal("git is not installed: install it") from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["git failed"])[0]
        raise Refusal(f"{source}: {reason}; give --jax-source a git checkout of jax") from error


def _require_jax(source: Path) -> anchors.Release:
    """The release of the checkout."""
    if not source.is_dir():
        raise Refusal(f"{source}: no such folder; give --jax-source a git checkout of jax")
    _require_files(source, [VERSION])
    top = _git(source, "rev-parse", "--show-toplevel").rstrip("\n")
    if Path(top) != source.resolve():
        raise Refusal(f"{source}: is inside the checkout {top}; give --jax-source its own checkout")
    version_py = _texts(source, [VERSION])[VERSION] or ""
    found = re.search(r'^_version = "(\d+)\.(\d+)', version_py, re.MULTILINE)
    if found is None:
        raise Refusal(f"{VERSION}: `_version` is not there: a layout this port does not know")
    return tuple(int(number) for number in found.groups())


def _require_files(source: Path, names: Iterable[str]) -> None:
    for name in names:
        if not (source / name).is_file():
            raise Refusal(f"{source}: has no {name}; give --jax-source a git checkout of jax")


def _require_clean(source: Path) -> None:
    changed = _git(source, "status", "--porcelain").splitlines()
    if changed:
        raise Refusal(
            f"{source}: {changed[0][3:]} is not committed; commit or stash it, or give --force"
        )


def _texts(source: Path, names: Iterable[str]) -> dict[str, str | None]:
    """The texts of some files now."""
    with refusing_os_errors(f"read {source}"):
        return {name: _text(source / name) for name in names}


def _text(file: Path) -> str | None:
    if not file.exists():
        return None
    # Keeps line ends, and bytes that are not UTF-8.
    with file.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
        return stream.read()


def _changed(
    before: Texts,
    edits: Iterable[anchors.Edit],
    ours: Mapping[str, str],
    revert: bool,
    force: bool,
) -> dict[str, str | None]:
    """The texts of the files after the change."""
    after = dict(before)
    change = anchors.undo if revert else anchors.apply
    for edit in edits:
        after[edit.file] = change(edit, after[edit.file] or "")
    for name, text in ours.items():
        _require_ours(name, before[name], text, force)
        after[name] = None if revert else text
    return after


def _require_ours(name: str, there: str | None, ours: str, force: bool) -> None:
    if there not in (None, ours) and not force:
        raise Refusal(f"{name}: is there, and is not ours; move it away, or give --force")


def _difference(name: str, before: str | None, after: str | None) -> str:
    lines = difflib.unified_diff(
        (before or "").splitlines(keepends=True),
        (after or "").splitlines(keepends=True),
        "/dev/null" if before is None else f"a/{name}",
        "/dev/null" if after is None else f"b/{name}",
    )
    return "".join(lines)


def _write(source: Path, changes: Texts) -> None:
    """Writes all changes, or none if one cannot be written."""
    staged: dict[Path, Path] = {}
    try:
        with refusing_os_errors(f"write to {source}"):
            for name, text in changes.items():
                if text is not None:
                    staged[source / name] = _stage(source / name, text)
            for file, copy in staged.items():
                copy.replace(file)
            for name, text in changes.items():
                if text is None:
                    (source / name).unlink()
    finally:
        for copy in staged.values():
            copy.unlink(missing_ok=True)


def _stage(file: Path, text: str) -> Path:
    """Writes a file's new text to a copy beside it."""
    copy = file.with_name(f".{file.name}.port")
    try:
        with copy.open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            stream.write(text)
        if file.exists():
            shutil.copymode(file, copy)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    return copy
