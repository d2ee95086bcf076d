"""Where the fix goes in jaxlib's own sources. The one place to mend when upstream's layout changes.

A place is found by names alone, from which `Edit` walks to it. None of upstream's text is here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from paths import ROOT
from refusal import Refusal

TEMPLATES = ROOT / "build" / "port" / "templates"


class Edit(NamedTuple):
    """One replacement of `old` by `new` in a file."""

    file: str
    anchors: tuple[str, ...]  # each is there once after the one before it, and `old` after the last
    old: str
    new: str
    end: str = ""  # where to stop looking for `old`; the end of the file where empty
    until: tuple[int, ...] = ()  # the release that needs it no longer, where there is one


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _before(file: str, line: str, text: str, *, after: tuple[str, ...] = (), end: str = "") -> Edit:
    return Edit(file, after, line, text + line, end)


def edits() -> list[Edit]:
    """What changes in the files that upstream has."""
    include, target = '#include "jaxlib/{}.h"\n', 'cc_library(\n    name = "pjit",\n'
    # jax 0.11 made the same change when it made these shardings physical in Python.
    pinned = ("def test_partial_sharded_prng_key_inp(", "base_array.sharding")
    wrapped = f",\n{' ' * 21}NamedSharding("
    return [
        _before(
            "jaxlib/pjit.cc", include.format("py_array"), include.format("physical_out_shardings")
        ),
        _before(
            "jaxlib/pjit.cc",
            f"{' ' * 8}PopulateCacheEntry(*cache_entry",
            _template("call_site.cc"),
            after=(
                "nb::object global_cache_key_;",
                "PyTreeRegistry> pytree_registry_;",
                "PjitFunction::Call(nb::handle",
                "size_t num_positional_args =",
                "size_t num_keyword_args =",
                "call_signature.arg_signature, flat_dynamic_args",
                "nb::cast<nb::tuple>(out_and_fastpath_data)",
            ),
            end="\n}\n",
        ),
        _before("jaxlib/BUILD", target, _template("library.BUILD")),
        _before(
            "jaxlib/BUILD",
            '        ":py_client",\n',
            '        ":physical_out_shardings",\n',
            after=(target,),
            end="\n)\n",
        ),
        _before(
            "tests/BUILD",
            'jax_multiplatform_test(\n    name = "pjit_test",\n',
            _template("tests.BUILD"),
        ),
        Edit("tests/pjit_test.py", pinned, ", NamedSharding(", wrapped, "\n\n", (0, 11)),
        Edit("tests/pjit_test.py", pinned, "')))\n", "', None)))\n", "\n\n", (0, 11)),
    ]


def new_files() -> dict[str, str]:
    """The files to add, by their path in upstream's tree."""
    sources = ROOT / "jaxlib"
    library = ("physical_out_shardings.h", "physical_out_shardings.cc")
    tests = (
        "physical_out_shardings_test.cc",
        "python_testing.h",
        "python_testing.cc",
        "fake_jax.py",
    )
    texts = {f"jaxlib/{name}": (sources / name).read_text(encoding="utf-8") for name in library}
    for name in tests:
        texts[f"jaxlib/python_testing/{name}"] = _ported_test(sources, name)
    return texts | {
        "jaxlib/python_testing/BUILD": _template("python_testing.BUILD"),
        "jaxlib/python_testing/run_gtest.py": _template("run_gtest.py.in"),
        "tests/physical_out_shardings_test.py": _template("physical_out_shardings_test.py.in"),
    }


def _ported_test(sources: Path, name: str) -> str:
    """A file of the tests, with the paths that it has upstream."""
    folder = sources if name.startswith("physical") else sources / "testing"
    text = (folder / name).read_text(encoding="utf-8")
    return text.replace("jaxlib/testing", "jaxlib").replace("JAXLIB_TESTING_", "JAXLIB_")


def apply(edit: Edit, text: str) -> str:
    """`text` with the edit made; unchanged where it has been made.

    Raises:
      Refusal: the layout is not the expected one.
    """
    start, end = _scope(edit, text)
    if text.count(edit.new, start, end) == 1:
        return text
    return _replaced(edit, text, edit.old, edit.new, start, end)


def undo(edit: Edit, text: str) -> str:
    """`text` with the edit undone; unchanged where it has not been made.

    Raises:
      Refusal: the layout is not the expected one.
    """
    start, end = _scope(edit, text)
    if text.count(edit.new, start, end) == 0:
        return text
    return _replaced(edit, text, edit.new, edit.old, start, end)


def _replaced(edit: Edit, text: str, old: str, new: str, start: int, end: int) -> str:
    position = _only(edit.file, text, old, start, end)
    return text[:position] + new + text[position + len(old) :]


def _scope(edit: Edit, text: str) -> tuple[int, int]:
    """Where to look for `old`."""
    start = 0
    for anchor in edit.anchors:
        start = _only(edit.file, text, anchor, start, len(text)) + len(anchor)
    if not edit.end:
        return start, len(text)
    end = text.find(edit.end, start)
    if end < 0:
        raise Refusal(_unknown(edit.file, f"nothing ends what `{edit.anchors[-1]}` begins"))
    return start, end + len(edit.end)


def _only(file: str, text: str, anchor: str, start: int, end: int) -> int:
    count = text.count(anchor, start, end)
    if count != 1:
        raise Refusal(
            _unknown(file, f"the anchor `{anchor.strip()}` is there {count} times, not once")
        )
    return text.index(anchor, start, end)


def _unknown(file: str, what: str) -> str:
    return f"{file}: {what}: a layout this port does not know; fix build/port/anchors.py"
