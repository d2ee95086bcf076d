"""The places in jaxlib's own sources that the fix changes. Fix these if upstream's layout changes.

An `Edit` finds its place by the names before it. Of upstream's text, this file has only those names
and the lines that change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from paths import ROOT
from refusal import Refusal

TEMPLATES = ROOT / "build" / "port" / "templates"
COMPARISON, TABLE = "comparison", "table"
PARTS = (COMPARISON, TABLE)  # each a commit of its own, and in this order

Release = tuple[int, ...]


class Edit(NamedTuple):
    """One replacement of `old` by `new` in a file."""

    file: str
    anchors: tuple[str, ...]  # each occurs once after the one before it; `old` follows the last
    old: str
    new: str
    end: str = ""  # where to stop looking for `old`; empty for the end of the file


def edits(release: Release, parts: Sequence[str] = PARTS) -> list[Edit]:
    """The edits to the files of a release."""
    changes = {COMPARISON: _comparison, TABLE: _table}
    return [edit for part in parts for edit in changes[part](release)]


def new_files(parts: Sequence[str] = PARTS) -> dict[str, str]:
    """The files to add, by their path in upstream's tree."""
    names = {COMPARISON: "fastpath_shardings_test.py", TABLE: "physical_out_shardings_test.py"}
    return {f"tests/{names[part]}": _template(f"{names[part]}.in") for part in parts}


def _comparison(release: Release) -> list[Edit]:
    # Until 0.9, PartitionSpec was a C++ class.
    as_spelled = "*a_named_sharding->spec() == *b_named_sharding->spec()"
    if release >= (0, 10):
        as_spelled = "a_named_sharding->spec().equal(b_named_sharding->spec())"
    named_sharding = "class NamedSharding : public Sharding {\n"
    signature = "PjitFunction::ComputeCallSignature(\n    absl::Span<nb::object const> flat_dynamic"
    qualifier = "" if release >= (0, 7) else "xla::"
    pushed = "      signature.dynamic_arg_shardings.push_back(py_array.sharding());\n"
    return [
        _before("jaxlib/sharding.h", named_sharding, _of_namespace_jax("canonical_spec.h")),
        _before(
            "jaxlib/sharding.h",
            "  static nanobind::handle type() { return type_; }\n",
            _template("canonical_spec_accessor.h"),
            after=(named_sharding,),
            end="\n};\n",
        ),
        _before(
            "jaxlib/sharding.h",
            "  static PyObject* type_;\n",
            "  mutable CachedPyObject canonical_spec_;\n",
            after=("  mutable CachedPyObject hash_;",),
            end="\n};\n",
        ),
        _before(
            "jaxlib/sharding.cc",
            "NamedSharding::NamedSharding(nb::object mesh,",
            _of_namespace_jax("canonical_spec.cc").replace("namespace nb = nanobind;\n\n", ""),
        ),
        _before(
            "jaxlib/sharding.cc",
            "bool NamedSharding::operator==(const NamedSharding& other) const {\n",
            _template("canonical_spec_accessor.cc"),
        ),
        Edit(
            "jaxlib/jax_jit.cc",
            ("bool EqualShardingsForJit(nb::handle a, nb::handle b) {\n",),
            f"           {as_spelled} &&\n",
            _template("canonical_spec_comparison.cc"),
            "\n}\n",
        ),
        _before(
            "jaxlib/jax_jit.cc",
            f'  nb::class_<{qualifier}PyArgSignature> arg_signature(jitlib, "PyArgSignature");\n',
            '  jitlib.def("_equal_shardings_for_jit", &EqualShardingsForJit);\n\n',
        ),
        _before(
            "jaxlib/_jax/jax_jit.pyi",
            "def parse_arguments(\n",
            "def _equal_shardings_for_jit(arg0: object, arg1: object, /) -> bool: ...\n\n",
        ),
        Edit(
            "jaxlib/pjit.cc",
            (signature,),
            pushed,
            _template("canonical_spec_before_lookup.cc"),
            "\n}\n",
        ),
        _test_target("fastpath_shardings_test", before="fft_test"),
    ]


def _table(release: Release) -> list[Edit]:
    populate = "void PjitFunction::PopulateCacheEntry(PjitCacheEntry& cache_entry,\n"
    table = _template("table.cc")
    if release < (0, 7):
        table = re.sub(r"\b(PyArray|PyTreeDef|PyTreeRegistry)\b", r"xla::\1", table)
    edits = [
        _before(
            "jaxlib/pjit.cc",
            "  std::vector<bool> out_committed;\n",
            _template("table_member.cc"),
            after=("struct PjitCacheEntry {\n",),
            end="\n};\n",
        ),
        Edit(
            "jaxlib/pjit.cc",
            ("PjitFunction::Call(nb::handle callable,\n",),
            *_made_on_a_hit(release),
            "\n}\n",
        ),
        _before("jaxlib/pjit.cc", populate, table),
        _before(
            "jaxlib/pjit.cc",
            "  nb::sequence kept_var_bitvec = ",
            _template("table_call.cc"),
            after=(populate,),
            end="\n}\n",
        ),
        _test_target("physical_out_shardings_test", before="pjit_test"),
    ]
    return edits + (_physical_assertion() if release < (0, 11) else [])


def _made_on_a_hit(release: Release) -> tuple[str, str]:
    """Some arguments of the PyArrays that a hit makes, before and after the change."""
    line = f"\n{' ' * 8}"
    logical, physical = "cache_entry->out_shardings[i],", "cache_entry->physical_out_shardings[i],"
    client, array = "cache_entry->executable->client(),", "std::move(output_arrays[i]),"
    if release < (0, 8):
        old = f"{logical} {client}{line}traceback, {array}"
        return old, f"{physical}{line}{client} traceback,{line}{array}"
    return f"{logical} {client}{line}{array}", f"{physical}{line}{client} {array}"


def _physical_assertion() -> list[Edit]:
    """The changes to JAX's tests that jax 0.11 made, too, with its own fix."""
    pinned = ("def test_partial_sharded_prng_key_inp(", "base_array.sharding")
    wrapped = f",\n{' ' * 21}NamedSharding("
    return [
        Edit("tests/pjit_test.py", pinned, ", NamedSharding(", wrapped, "\n\n"),
        Edit("tests/pjit_test.py", pinned, "')))\n", "', None)))\n", "\n\n"),
    ]


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _of_namespace_jax(name: str) -> str:
    """The part of our file in `namespace jax`, without the namespace's own lines."""
    text = (ROOT / "jaxlib" / name).read_text(encoding="utf-8")
    return text.split("namespace jax {\n")[1].split("}  // namespace jax\n")[0].lstrip("\n")


def _before(file: str, line: str, text: str, *, after: tuple[str, ...] = (), end: str = "") -> Edit:
    return Edit(file, after, line, text + line, end)


def _test_target(name: str, before: str) -> Edit:
    target = _template("tests.BUILD").replace("NAME", name)
    return _before("tests/BUILD", f'jax_multiplatform_test(\n    name = "{before}",\n', target)


def apply(edit: Edit, text: str) -> str:
    """`text` with the edit made. Unchanged if it was made before.

    Raises:
      Refusal: the layout is not the expected one.
    """
    start, end = _scope(edit, text)
    if text.count(edit.new, start, end) == 1:
        return text
    return _replaced(edit, text, edit.old, edit.new, start, end)


def undo(edit: Edit, text: str) -> str:
    """`text` with the edit undone. Unchanged if it was not made.

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
