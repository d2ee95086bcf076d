"""Writes an index of a folder of wheels: `simple/`, as in PEP 503, and SHA256SUMS.

It works from a static web server, or as a file URL.
"""

from __future__ import annotations

import html
from pathlib import Path
from urllib.parse import quote

from wheel.wheelfile import WheelFile

from refusal import refusing_os_errors
from wheels.repack import sha256_of
from wheels.stock_wheel import headers

_SUMS = "SHA256SUMS"
_PAGE = """<!DOCTYPE html>
<html>
<head><meta name="pypi:repository-version" content="1.0"><title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


def write_index(folder: Path) -> None:
    """Writes the index of all jaxlib wheels in a folder, and replaces the one there.

    Raises:
      Refusal: it cannot be written.
    """
    sums = {path.name: sha256_of(path) for path in sorted(folder.glob("jaxlib-*.whl"))}
    links = [_link(folder / name, digest) for name, digest in sums.items()]
    with refusing_os_errors(f"write to {folder}"):
        _replace(folder / "simple" / "jaxlib" / "index.html", _page("jaxlib", links))
        root = _page("Simple index", ['<a href="jaxlib/">jaxlib</a>'])
        _replace(folder / "simple" / "index.html", root)
        lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
        _replace(folder / _SUMS, lines)


def _link(wheel: Path, digest: str) -> str:
    with WheelFile(wheel) as file:
        python = headers(file, "METADATA").get("Requires-Python")
    # quote() also escapes the plus sign, which some servers read as a space.
    url = f"../../{quote(wheel.name)}#sha256={digest}"
    wants = f' data-requires-python="{html.escape(python)}"' if python else ""
    return f'<a href="{url}"{wants}>{html.escape(wheel.name)}</a><br>'


def _page(title: str, links: list[str]) -> str:
    return _PAGE.format(title=title, links="\n".join(links))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    part.replace(path)
