"""Fills the blocks of figures in the pages. A block is on lines of its own, or within a line:

    <!-- figures: MODULE.FUNCTION -->
    what FUNCTION() of pages/MODULE.py returns
    <!-- /figures -->

Commands write two kinds of pages as a whole, which are compared in the same way: `summary.md` of
`build.py bench`, with the `results.json` beside it, and `docs/systems.md` of `build.py systems`,
with its rows.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import markdown
from paths import ROOT
from refusal import Refusal
from systems import matrix

_BLOCK = re.compile(r"<!-- figures: (\S+) -->(.*?)<!-- /figures -->", re.DOTALL)


def pages() -> list[Path]:
    """The pages that may have blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def changed() -> Iterator[tuple[Path, str]]:
    """Each page that differs from its figures, and the text that it should have.

    Raises:
      Refusal: a block names a function that does not exist.
    """
    for path in pages():
        before = path.read_text()
        after = _whole(path) or _filled(path, before)
        if after != before:
            yield path, after


def _whole(path: Path) -> str:
    """The text of a page that a command writes as a whole, or nothing for any other page."""
    results = path.parent / "results.json"
    if results.is_file():
        return markdown.document(json.loads(results.read_text()))
    return matrix.page(matrix.read()) if path.name == "systems.md" else ""


def _filled(path: Path, text: str) -> str:
    if text.count("<!-- figures:") != len(_BLOCK.findall(text)):
        raise Refusal(f"{path}: a block of figures has no end; close it with <!-- /figures -->")

    def block(match: re.Match[str]) -> str:
        name, content = match.groups()
        gap = "\n" if content.startswith("\n") else ""
        return f"<!-- figures: {name} -->{gap}{_content(path, name)}{gap}<!-- /figures -->"

    return _BLOCK.sub(block, text)


def _content(path: Path, name: str) -> str:
    module, _, function = name.partition(".")
    try:
        write = getattr(importlib.import_module(f"pages.{module}"), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise Refusal(
            f"{path}: has figures {name}, but there is no function {function or '(none)'} in "
            f"build/pages/{module}.py; write it, or delete the block"
        ) from error
    return write().strip()
