"""`build.py port`: its changes, its refusals, and how it is reverted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import interpreters
import synthetic_jax
from paths import ROOT
from port import anchors
from port.port import port
from refusal import Refusal
from synthetic_jax import JAX_JIT, PJIT, PJIT_TEST, SHARDING, SHARDING_H, STUB, TESTS, VERSION, git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git to check jax out with")

RELEASES = ("0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2", "0.11.0")
OF_COMPARISON = {
    SHARDING_H,
    SHARDING,
    JAX_JIT,
    STUB,
    PJIT,
    TESTS,
    "tests/fastpath_shardings_test.py",
}
OF_TABLE = {PJIT, TESTS, PJIT_TEST, "tests/physical_out_shardings_test.py"}
ADDED = {"tests/fastpath_shardings_test.py", "tests/physical_out_shardings_test.py"}
EXISTING = (OF_COMPARISON | OF_TABLE) - ADDED
CPP = (SHARDING_H, SHARDING, JAX_JIT, PJIT)

DESCRIPTION = (ROOT / "docs/upstream_pr.md").read_text()

PORTED_COMPARISON = """\
    return a_named_sharding->mesh().ptr() == b_named_sharding->mesh().ptr() &&
           // The compiler chooses the spelling of an output's sharding, and does
           // not keep that of an input.
           (a_named_sharding->spec().is(b_named_sharding->spec()) ||
            a_named_sharding->canonical_spec().equal(
                b_named_sharding->canonical_spec())) &&
           a_named_sharding->memory_kind().equal(
"""

PORTED_HIT = """\
        cache_entry->out_avals[i],
        cache_entry->physical_out_shardings[i],
        cache_entry->executable->client(), std::move(output_arrays[i]),
        /*committed=*/true);
"""

PORTED_TESTS = """\
jax_multiplatform_test(
    name = "fastpath_shardings_test",
    srcs = ["fastpath_shardings_test.py"],
    deps = py_deps("absl/testing"),
)

jax_multiplatform_test(
    name = "fft_test",
)

jax_multiplatform_test(
    name = "physical_out_shardings_test",
    srcs = ["physical_out_shardings_test.py"],
    deps = py_deps("absl/testing"),
)

jax_multiplatform_test(
    name = "pjit_test",
)
"""

PHYSICAL_ASSERTION = """\
    self.assertEqual(base_array.sharding,
                     NamedSharding(mesh, P('x', None)))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return synthetic_jax.checkout(tmp_path / "jax")


def status(source: Path) -> str:
    return git(source, "status", "--porcelain", "--untracked-files=all")


def changed(source: Path) -> set[str]:
    return {line[3:] for line in status(source).splitlines()}


def lines_of_cpp(source: Path) -> int:
    """The number of C++ lines that were changed or added, without tests."""
    counts = git(source, "diff", "--numstat", "--", *CPP).splitlines()
    return sum(int(line.split("\t")[0]) for line in counts)


@pytest.mark.parametrize(
    ("part", "version", "lines"),
    [
        (anchors.COMPARISON, "0.6.2", 71),
        (anchors.COMPARISON, "0.11.0", 71),
        (anchors.TABLE, "0.6.2", 41),
        (anchors.TABLE, "0.11.0", 40),
    ],
)
def test_each_part_has_as_many_lines_of_cpp_as_its_description_says(
    part: str, version: str, lines: int, tmp_path: Path
) -> None:
    source = synthetic_jax.checkout(tmp_path, version)

    port(source, [part])

    assert lines_of_cpp(source) == lines
    assert f"{lines} lines of C++" in DESCRIPTION or f"{lines} in {version}" in DESCRIPTION


def test_only_the_ports_files_change(source: Path) -> None:
    port(source)

    assert changed(source) == OF_COMPARISON | OF_TABLE


@pytest.mark.parametrize(
    ("part", "files"), [(anchors.COMPARISON, OF_COMPARISON), (anchors.TABLE, OF_TABLE)]
)
def test_one_part_changes_only_its_own_files(part: str, files: set[str], source: Path) -> None:
    port(source, [part])

    assert changed(source) == files


@pytest.mark.parametrize("parts", [anchors.PARTS, anchors.PARTS[::-1]], ids=" then ".join)
def test_all_parts_in_order_are_the_whole_port(parts: tuple[str, ...], source: Path) -> None:
    for part in parts:
        port(source, [part])
        synthetic_jax.commit(source)

    port(source)

    assert status(source) == ""


def test_specs_are_compared_by_what_they_say(source: Path) -> None:
    port(source)

    assert (source / JAX_JIT).read_text().count(PORTED_COMPARISON) == 1


@pytest.mark.parametrize("version", RELEASES)
def test_no_hash_changes(version: str, tmp_path: Path) -> None:
    source = synthetic_jax.checkout(tmp_path, version)
    before = hash_of_a_sharding(source)

    port(source)

    assert hash_of_a_sharding(source) == before


def hash_of_a_sharding(source: Path) -> str:
    """The lines with which the fastpath hashes a sharding."""
    return (source / JAX_JIT).read_text().split("size_t HashShardingForJit")[1].split("\n}\n")[0]


def test_a_hit_attaches_the_physical_shardings(source: Path) -> None:
    port(source)

    assert (source / PJIT).read_text().count(PORTED_HIT) == 1


def test_until_0_7_the_types_of_jaxlib_are_those_of_xla(tmp_path: Path) -> None:
    source = synthetic_jax.checkout(tmp_path, "0.6.2")

    port(source)

    added = [line for line in git(source, "diff", PJIT).splitlines() if line.startswith("+")]
    assert not re.findall(r"(?<!xla::)\b(?:PyTreeRegistry|PyTreeDef|PyArray)\b", "\n".join(added))


@pytest.mark.parametrize(
    ("name", "ported"), [("canonical_spec.h", SHARDING_H), ("canonical_spec.cc", SHARDING)]
)
def test_the_code_is_the_same_as_in_the_wheel(name: str, ported: str, source: Path) -> None:
    port(source)

    ours = (ROOT / "jaxlib" / name).read_text().split("namespace jax {\n")[1]
    body = ours.split("}  // namespace jax\n")[0].replace("namespace nb = nanobind;\n\n", "")
    assert (source / ported).read_text().count(body.strip("\n")) == 1


def test_the_python_tests_have_targets(source: Path) -> None:
    port(source)

    assert (source / TESTS).read_text() == PORTED_TESTS


def test_the_test_that_pins_a_logical_sharding_asks_for_the_physical_one(source: Path) -> None:
    port(source)

    before, after = synthetic_jax.FILES[PJIT_TEST], (source / PJIT_TEST).read_text()
    old = "    self.assertEqual(base_array.sharding, NamedSharding(mesh, P('x')))\n"
    assert after == before.replace(old, PHYSICAL_ASSERTION)


def test_from_0_11_on_that_test_is_left_alone(tmp_path: Path) -> None:
    source = synthetic_jax.checkout(tmp_path, version="0.11.0")

    port(source)

    assert PJIT_TEST not in changed(source)


def test_each_added_file_is_named(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port(source)

    said = capsys.readouterr().out.splitlines()
    assert {line.removeprefix("added   ") for line in said if line.startswith("added")} == ADDED


def test_a_second_run_says_that_the_port_is_there(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port(source)
    once = (status(source), git(source, "diff"))
    capsys.readouterr()

    port(source)

    assert capsys.readouterr().out == f"{source}: the port is there already\n"
    assert (status(source), git(source, "diff")) == once


def test_check_writes_nothing(source: Path) -> None:
    port(source, check=True)

    assert status(source) == ""


def test_check_prints_the_change(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port(source, check=True)
    patch = tmp_path / "port.patch"
    patch.write_text(capsys.readouterr().out)
    git(source, "apply", str(patch))

    port(source)

    assert capsys.readouterr().out == f"{source}: the port is there already\n"


def test_check_looks_at_a_dirty_checkout_too(source: Path) -> None:
    (source / "README.md").write_text("Mine.\n")

    port(source, check=True)

    assert changed(source) == {"README.md"}


@pytest.mark.parametrize("version", RELEASES)
def test_revert_leaves_git_status_clean(version: str, tmp_path: Path) -> None:
    source = synthetic_jax.checkout(tmp_path, version=version)
    port(source)

    port(source, revert=True)

    assert status(source) == ""


def test_revert_without_a_port_says_so(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port(source, revert=True)

    assert capsys.readouterr().out == f"{source}: the port is not there\n"


def test_revert_keeps_other_changes(source: Path) -> None:
    port(source)
    ported = (source / PJIT).read_text()
    (source / PJIT).write_text(ported + "// Mine.\n")

    port(source, revert=True)

    assert (source / PJIT).read_text() == synthetic_jax.FILES[PJIT] + "// Mine.\n"


def test_one_part_is_reverted_by_itself(source: Path) -> None:
    port(source)

    port(source, [anchors.COMPARISON], revert=True)

    assert changed(source) == OF_TABLE


def test_a_partial_port_is_completed(source: Path) -> None:
    port(source)
    whole = git(source, "diff")
    git(source, "checkout", "--quiet", SHARDING)
    (source / "tests/fastpath_shardings_test.py").unlink()

    port(source, force=True)

    assert git(source, "diff") == whole
    assert changed(source) >= ADDED


def test_other_line_ends_and_bytes_are_kept(tmp_path: Path) -> None:
    source = synthetic_jax.checkout(tmp_path)
    odd = synthetic_jax.FILES[PJIT].encode() + b"// \xff\r\n"
    (source / PJIT).write_bytes(odd)
    synthetic_jax.commit(source)

    port(source)
    ported = (source / PJIT).read_bytes()
    port(source, revert=True)

    assert ported.endswith(b"// \xff\r\n")
    assert (source / PJIT).read_bytes() == odd


def refusal_of(source: Path, **options: bool) -> str:
    """The refusal of a checkout, which must be unchanged after it."""
    before = {file: file.read_bytes() for file in source.rglob("*") if file.is_file()}
    with pytest.raises(Refusal) as refused:
        port(source, **options)
    assert {file: file.read_bytes() for file in source.rglob("*") if file.is_file()} == before
    assert "\n" not in str(refused.value)
    return str(refused.value)


ANCHORS = sorted(
    {
        (edit.file, anchor)
        for edit in anchors.edits((0, 10))
        for anchor in (*edit.anchors, edit.old)
        if edit.file != PJIT_TEST
    }
)


@pytest.mark.parametrize(("name", "anchor"), ANCHORS)
def test_a_missing_anchor_is_refused(name: str, anchor: str, tmp_path: Path) -> None:
    text = synthetic_jax.FILES[name].replace(anchor, "")
    source = synthetic_jax.checkout(tmp_path, files={name: text})

    said = refusal_of(source)

    assert said.startswith(f"{name}: the anchor `{' '.join(anchor.split())}` is there 0 times")


@pytest.mark.parametrize(("name", "anchor"), ANCHORS)
def test_an_anchor_that_occurs_twice_is_refused(name: str, anchor: str, tmp_path: Path) -> None:
    text = synthetic_jax.FILES[name]
    # Beside the last one, so that it is in the same function or target.
    at = text.rindex(anchor)
    source = synthetic_jax.checkout(tmp_path, files={name: text[:at] + anchor + text[at:]})

    said = refusal_of(source)

    assert said.startswith(f"{name}: the anchor `{' '.join(anchor.split())}` is there 2 times")


def test_anchors_in_another_order_are_refused(tmp_path: Path) -> None:
    first, second = "mutable CachedPyObject hash_;", "static PyObject* type_;"
    text = synthetic_jax.FILES[SHARDING_H]
    before, named_sharding, after = text.partition("class NamedSharding")
    swapped = after.replace(first, "@").replace(second, first, 1).replace("@", second)
    files = {SHARDING_H: before + named_sharding + swapped}
    source = synthetic_jax.checkout(tmp_path, files=files)

    assert refusal_of(source).startswith(f"{SHARDING_H}: the anchor `{second}` is there 0 times")


def test_an_anchor_outside_of_its_function_is_refused(tmp_path: Path) -> None:
    line = "  nb::sequence kept_var_bitvec = "
    text = synthetic_jax.FILES[PJIT].replace(line, f"}}\n{line}")
    source = synthetic_jax.checkout(tmp_path, files={PJIT: text})

    assert f"`{line.strip()}` is there 0 times" in refusal_of(source)


def test_a_function_without_an_end_is_refused(tmp_path: Path) -> None:
    text = synthetic_jax.FILES[PJIT].rstrip().removesuffix("}")
    source = synthetic_jax.checkout(tmp_path, files={PJIT: text})

    assert refusal_of(source).startswith(f"{PJIT}: nothing ends what `void PjitFunction::Populate")


def test_an_unknown_version_file_is_refused(tmp_path: Path) -> None:
    source = synthetic_jax.checkout(tmp_path, files={VERSION: "version = 1\n"})

    assert refusal_of(source).startswith(f"{VERSION}: `_version` is not there")


def test_a_dirty_checkout_is_refused(source: Path) -> None:
    (source / "README.md").write_text("Mine.\n")

    assert refusal_of(source) == (
        f"{source}: README.md is not committed; commit or stash it, or give --force"
    )


def test_a_file_that_git_does_not_know_makes_a_checkout_dirty(source: Path) -> None:
    (source / "notes.txt").write_text("Mine.\n")

    assert "notes.txt is not committed" in refusal_of(source)


def test_a_dirty_checkout_is_ported_by_force(source: Path) -> None:
    (source / "README.md").write_text("Mine.\n")

    port(source, force=True)

    assert (source / "README.md").read_text() == "Mine.\n"
    assert changed(source) >= {PJIT, "README.md"}


def test_another_file_of_the_same_name_is_not_overwritten(source: Path) -> None:
    mine = "tests/fastpath_shardings_test.py"
    (source / mine).write_text("Mine.\n")
    synthetic_jax.commit(source)

    assert refusal_of(source) == f"{mine}: is there, and is not ours; move it away, or give --force"


def test_a_file_that_was_changed_later_is_not_deleted(source: Path) -> None:
    port(source)
    mine = "tests/fastpath_shardings_test.py"
    (source / mine).write_text("Mine.\n")

    assert refusal_of(source, revert=True).startswith(f"{mine}: is there, and is not ours")


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    for name, text in {**synthetic_jax.FILES, VERSION: '_version = "0.10.2"\n'}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    said = refusal_of(tmp_path)

    assert "not a git repository" in said
    assert said.endswith("; give --jax-source a git checkout of jax")


def test_a_folder_inside_of_a_checkout_is_refused(tmp_path: Path) -> None:
    synthetic_jax.checkout(tmp_path / "inner")
    (tmp_path / "inner" / ".git").rename(tmp_path / ".git")

    assert "is inside the checkout" in refusal_of(tmp_path / "inner")


@pytest.mark.parametrize("name", [*sorted(EXISTING), VERSION])
def test_a_checkout_of_another_project_is_refused(name: str, source: Path) -> None:
    git(source, "rm", "--quiet", name)
    synthetic_jax.commit(source)

    assert refusal_of(source) == f"{source}: has no {name}; give --jax-source a git checkout of jax"


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "none").endswith(
        "none: no such folder; give --jax-source a git checkout of jax"
    )


def test_if_one_file_cannot_be_written_no_file_is(source: Path) -> None:
    (source / "tests" / ".fastpath_shardings_test.py.port").mkdir()  # the path of a copy

    said = refusal_of(source, force=True)

    assert said == f"cannot write to {source}: Is a directory"
    assert status(source) == ""


def run_build(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "build/build.py", "port", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_ports_and_reverts(source: Path) -> None:
    there = run_build("--jax-source", str(source))
    ported = lines_of_cpp(source)
    back = run_build("--jax-source", str(source), "--revert")

    assert (there.returncode, ported, back.returncode, status(source)) == (0, 111, 0, "")


def test_the_command_ports_one_part(source: Path) -> None:
    done = run_build("--jax-source", str(source), "--only", "table")

    assert (done.returncode, changed(source)) == (0, OF_TABLE)


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    done = run_build("--jax-source", str(tmp_path))

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"build\.py: \S+: has no jax/version\.py; .*\n", done.stderr)


def outcome_of(source: Path, test: str, rule: str, simulated: bool = False) -> str:
    """The last line of the output of one of the Python tests for upstream."""
    port(source)
    settings = {
        "JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": rule,
        "JAXLIB_PJIT_STRICT": "1",
        "XLA_FLAGS": "",  # it sets its number of devices itself
    }
    simulation = [str(interpreters.TESTS / "simulated_comparison.py")] if simulated else []
    command = [*simulation, str(source / "tests" / test)]
    return interpreters.run(command, settings=settings).stderr.splitlines()[-1]


RELEASE = tuple(int(number) for number in version("jax").split(".")[:2])
needs_simulation = pytest.mark.skipif(RELEASE < (0, 10), reason="it compares specs in C++")


@needs_simulation
def test_upstream_s_test_of_the_comparison_passes_with_it(source: Path) -> None:
    outcome = outcome_of(source, "fastpath_shardings_test.py", "0", simulated=True)

    # Its tests of the C++ function need a jaxlib that has it.
    assert re.fullmatch(r"OK \(skipped=24\)", outcome)


def test_upstream_s_test_of_the_comparison_fails_without_it(source: Path) -> None:
    outcome = outcome_of(source, "fastpath_shardings_test.py", "0")

    counts = re.findall(r"(?:failures|errors)=(\d+)", outcome)
    # From 0.11 on, JAX's own conversion is enough for some.
    assert sum(map(int, counts)) == (38 if RELEASE < (0, 11) else 20)


def test_upstream_s_test_of_the_table_passes_with_ours(source: Path) -> None:
    assert outcome_of(source, "physical_out_shardings_test.py", "1") == "OK"


def test_upstream_s_test_of_the_table_fails_without_it(source: Path) -> None:
    outcome = outcome_of(source, "physical_out_shardings_test.py", "0")

    # From 0.11 on, JAX makes these shardings physical in Python.
    assert outcome == ("FAILED (failures=25)" if RELEASE < (0, 11) else "OK")


@pytest.fixture(params=[*(f"jax-v{release}" for release in RELEASES), "main"])
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A checkout of one of upstream's own tags, where one with tags is at hand."""
    upstream = request.config.getoption("--jax-source")
    if upstream is None:
        pytest.skip("--jax-source names no checkout of jax")
    names = git(upstream, "for-each-ref", "--format=%(refname:short)").splitlines()
    if request.param not in names:
        pytest.skip(f"{upstream} has no {request.param}")
    folder = tmp_path / "jax"
    git(tmp_path, "clone", "--quiet", "--shared", "--no-checkout", str(upstream), str(folder))
    # Its other files are not needed: a shallow or partial clone of upstream will do.
    git(folder, "sparse-checkout", "set", "--no-cone", "/jax/version.py", "/jaxlib/*", "/tests/*")
    commit = git(upstream, "rev-parse", f"{request.param}^{{commit}}").strip()
    git(folder, "checkout", "--quiet", "--detach", commit)
    yield folder


def added_lines(source: Path, name: str) -> list[str]:
    """The options that make clang-format check only the lines that the port added."""
    hunks = re.findall(
        r"^@@ .*\+(\d+)(?:,(\d+))? @@", git(source, "diff", "-U0", name), re.MULTILINE
    )
    return [f"--lines={start}:{int(start) + int(length or 1) - 1}" for start, length in hunks]


def test_upstream_s_cpp_changes_by_at_most_120_lines(release: Path) -> None:
    port(release)

    assert lines_of_cpp(release) <= 120
    assert changed(release) - {PJIT_TEST} == (OF_COMPARISON | OF_TABLE) - {PJIT_TEST}


@pytest.mark.parametrize("part", anchors.PARTS)
def test_upstream_takes_each_part_by_itself(part: str, release: Path) -> None:
    port(release, [part])
    files = {anchors.COMPARISON: OF_COMPARISON, anchors.TABLE: OF_TABLE}[part]

    assert changed(release) - {PJIT_TEST} == files - {PJIT_TEST}


def test_upstream_s_hash_covers_only_the_mesh_and_does_not_change(release: Path) -> None:
    before = hash_of_a_sharding(release)

    port(release)

    assert hash_of_a_sharding(release) == before
    of_named_sharding = before.split("NamedSharding::type()")[1].split("}")[0]
    assert "mesh().ptr()" in of_named_sharding
    assert "spec" not in of_named_sharding


def test_upstream_is_clean_after_revert(release: Path) -> None:
    port(release)
    port(release, revert=True)

    assert status(release) == ""


@pytest.mark.parametrize("name", CPP)
def test_clang_format_accepts_the_added_lines(name: str, release: Path) -> None:
    port(release)
    formatter = ROOT / ".build" / "lint" / "bin" / "clang-format"
    if not formatter.is_file():
        pytest.skip("CI has not installed clang-format yet")

    # Upstream sorts includes by its own rule, and has no file with it.
    style = "--style={BasedOnStyle: Google, SortIncludes: Never}"
    command = [str(formatter), style, *added_lines(release, name), str(release / name)]
    formatted = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert formatted == (release / name).read_text()
