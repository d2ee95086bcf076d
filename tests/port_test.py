"""`build.py port`: what it changes, what it refuses, and that it can be taken out again."""

from __future__ import annotations

import re
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
from synthetic_jax import LIBRARIES, PJIT, PJIT_TEST, TESTS, VERSION, git

RELEASES = ("0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2", "0.11.0")
OURS = ("jaxlib/physical_out_shardings.h", "jaxlib/physical_out_shardings.cc")
ADDED = {
    *OURS,
    "jaxlib/python_testing/BUILD",
    "jaxlib/python_testing/fake_jax.py",
    "jaxlib/python_testing/physical_out_shardings_test.cc",
    "jaxlib/python_testing/python_testing.cc",
    "jaxlib/python_testing/python_testing.h",
    "jaxlib/python_testing/run_gtest.py",
    "tests/physical_out_shardings_test.py",
}

PORTED_PJIT = """\
#include "jaxlib/nb_class_ptr.h"
#include "jaxlib/physical_out_shardings.h"
#include "jaxlib/py_array.h"
"""

PORTED_CALL = """\
        out_tuple = nb::cast<nb::tuple>(out_and_fastpath_data);

        // A static argument can be any hashable object, and is left alone.
        absl::InlinedVector<PyObject*, 4> dynamic_args(
            args, args + num_positional_args + num_keyword_args);
        for (const nb::object& arg : call_signature.arg_signature.static_args) {
          dynamic_args.erase(
              std::remove(dynamic_args.begin(), dynamic_args.end(), arg.ptr()),
              dynamic_args.end());
        }
        out_tuple = nb::cast<nb::tuple>(WithPhysicalOutShardings(
            out_tuple, dynamic_args, pytree_registry_, global_cache_key_));

        PopulateCacheEntry(*cache_entry, out_tuple);
"""

PORTED_LIBRARIES = """\
cc_library(
    name = "physical_out_shardings",
    srcs = ["physical_out_shardings.cc"],
    hdrs = ["physical_out_shardings.h"],
    copts = [
        "-fexceptions",
        "-fno-strict-aliasing",
    ],
    features = ["-use_header_modules"],
    deps = [
        "@com_google_absl//absl/types:span",
        "@nanobind",
        "@xla//third_party/python_runtime:headers",  # buildcleaner: keep
    ],
)

cc_library(
    name = "pjit",
    deps = [
        ":nb_class_ptr",
        ":physical_out_shardings",
        ":py_client",
    ],
)
"""

PORTED_TESTS = """\
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


def lines_changed(source: Path) -> int:
    """Lines added to and removed from files that upstream has."""
    counts = [line.split("\t")[:2] for line in git(source, "diff", "--numstat").splitlines()]
    return sum(int(added) + int(removed) for added, removed in counts)


def test_the_existing_files_change_by_38_lines(source: Path) -> None:
    port(source)

    assert lines_changed(source) == 38


def test_what_changes_is_the_port_alone(source: Path) -> None:
    port(source)

    assert changed(source) == {PJIT, LIBRARIES, TESTS, PJIT_TEST, *ADDED}


def test_pjit_includes_the_rule(source: Path) -> None:
    port(source)

    assert (source / PJIT).read_text().startswith(PORTED_PJIT)


def test_pjit_calls_the_rule_before_it_fills_the_cache_entry(source: Path) -> None:
    port(source)

    assert (source / PJIT).read_text().count(PORTED_CALL) == 1


def test_the_rule_is_a_library_that_pjit_depends_on(source: Path) -> None:
    port(source)

    assert (source / LIBRARIES).read_text().endswith(PORTED_LIBRARIES)


def test_the_python_test_has_a_target(source: Path) -> None:
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


@pytest.mark.parametrize("name", OURS)
def test_the_files_are_those_that_the_wheel_is_built_from(name: str, source: Path) -> None:
    port(source)

    assert (source / name).read_bytes() == (ROOT / name).read_bytes()


def test_each_added_file_is_told(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port(source)

    said = capsys.readouterr().out.splitlines()
    assert {line.removeprefix("added   ") for line in said if line.startswith("added")} == ADDED


def test_a_second_run_says_that_it_is_there(
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


def test_what_check_prints_is_the_change(
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


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0"])
def test_revert_leaves_git_status_clean(version: str, tmp_path: Path) -> None:
    source = synthetic_jax.checkout(tmp_path, version=version)
    port(source)

    port(source, revert=True)

    assert status(source) == ""
    assert not (source / "jaxlib" / "python_testing").exists()


def test_revert_of_a_port_that_is_not_there_says_so(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port(source, revert=True)

    assert capsys.readouterr().out == f"{source}: the port is not there\n"


def test_revert_keeps_other_changes(source: Path) -> None:
    port(source)
    ported = (source / PJIT).read_text()
    (source / PJIT).write_text(ported + "// Mine.\n")

    port(source, revert=True)

    assert (source / PJIT).read_text() == synthetic_jax.FILES[PJIT] + "// Mine.\n"


def test_a_port_that_is_half_there_is_completed(source: Path) -> None:
    port(source)
    git(source, "checkout", "--quiet", LIBRARIES)
    (source / OURS[0]).unlink()

    port(source, force=True)

    assert lines_changed(source) == 38
    assert changed(source) >= ADDED


def test_line_ends_and_bytes_that_are_not_ours_are_kept(tmp_path: Path) -> None:
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
    """What is said against a checkout, which must be as it was then."""
    before = {file: file.read_bytes() for file in source.rglob("*") if file.is_file()}
    with pytest.raises(Refusal) as refused:
        port(source, **options)
    assert {file: file.read_bytes() for file in source.rglob("*") if file.is_file()} == before
    assert "\n" not in str(refused.value)
    return str(refused.value)


ANCHORS = sorted(
    {
        (edit.file, anchor)
        for edit in anchors.edits()
        for anchor in (*edit.anchors, edit.old)
        if edit.file != PJIT_TEST
    }
)


@pytest.mark.parametrize(("name", "anchor"), ANCHORS)
def test_an_anchor_that_is_missing_is_refused(name: str, anchor: str, tmp_path: Path) -> None:
    text = synthetic_jax.FILES[name].replace(anchor, "")
    source = synthetic_jax.checkout(tmp_path, files={name: text})

    said = refusal_of(source)

    assert said.startswith(f"{name}: the anchor `{' '.join(anchor.split())}` is there 0 times")


@pytest.mark.parametrize(("name", "anchor"), ANCHORS)
def test_an_anchor_that_is_there_twice_is_refused(name: str, anchor: str, tmp_path: Path) -> None:
    text = synthetic_jax.FILES[name]
    # Beside the last one, so that it is within the same function or target.
    at = text.rindex(anchor)
    source = synthetic_jax.checkout(tmp_path, files={name: text[:at] + anchor + text[at:]})

    said = refusal_of(source)

    assert said.startswith(f"{name}: the anchor `{' '.join(anchor.split())}` is there 2 times")


def test_anchors_in_another_order_are_refused(tmp_path: Path) -> None:
    first, second = "size_t num_positional_args =", "size_t num_keyword_args ="
    text = synthetic_jax.FILES[PJIT]
    swapped = text.replace(first, "@").replace(second, first).replace("@", second)
    source = synthetic_jax.checkout(tmp_path, files={PJIT: swapped})

    assert refusal_of(source).startswith(f"{PJIT}: the anchor `{second}` is there 0 times")


def test_a_call_outside_of_its_function_is_refused(tmp_path: Path) -> None:
    call = "        PopulateCacheEntry("
    text = synthetic_jax.FILES[PJIT].replace(call, f"\n}}\n{call}")
    source = synthetic_jax.checkout(tmp_path, files={PJIT: text})

    assert "`PopulateCacheEntry(*cache_entry` is there 0 times" in refusal_of(source)


def test_a_function_without_an_end_is_refused(tmp_path: Path) -> None:
    text = synthetic_jax.FILES[LIBRARIES].rstrip().removesuffix(")")
    source = synthetic_jax.checkout(tmp_path, files={LIBRARIES: text})

    assert refusal_of(source).startswith(f"{LIBRARIES}: nothing ends what `cc_library(")


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


def test_a_file_of_another_s_is_not_written_over(source: Path) -> None:
    (source / OURS[0]).write_text("Mine.\n")
    synthetic_jax.commit(source)

    assert (
        refusal_of(source) == f"{OURS[0]}: is there, and is not ours; move it away, or give --force"
    )


def test_a_file_that_was_changed_since_is_not_deleted(source: Path) -> None:
    port(source)
    (source / OURS[0]).write_text("Mine.\n")

    assert refusal_of(source, revert=True).startswith(f"{OURS[0]}: is there, and is not ours")


def test_what_is_no_git_checkout_is_refused(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", [PJIT, LIBRARIES, TESTS, PJIT_TEST, VERSION])
def test_what_is_not_jax_is_refused(name: str, source: Path) -> None:
    git(source, "rm", "--quiet", name)
    synthetic_jax.commit(source)

    assert refusal_of(source) == f"{source}: has no {name}; give --jax-source a git checkout of jax"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "none").endswith(
        "none: no such folder; give --jax-source a git checkout of jax"
    )


def test_where_one_file_cannot_be_written_none_is(source: Path) -> None:
    (source / "jaxlib" / "python_testing").write_text("A file where a folder must be.\n")
    synthetic_jax.commit(source)

    said = refusal_of(source)

    assert said.startswith(f"cannot write to {source}: something of that name is in the way")
    assert status(source) == ""


def run_build(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "build/build.py", "port", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_ports_and_reverts(source: Path) -> None:
    there = run_build("--jax-source", str(source))
    ported = lines_changed(source)
    back = run_build("--jax-source", str(source), "--revert")

    assert (there.returncode, ported, back.returncode, status(source)) == (0, 38, 0, "")


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    done = run_build("--jax-source", str(tmp_path))

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"build\.py: \S+: has no jax/version\.py; .*\n", done.stderr)


def outcome_of_upstream_s_own_test(source: Path, rule: str) -> str:
    """The last line that the Python test for upstream says, of its 34 cases."""
    port(source)
    settings = {
        "JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS": rule,
        "JAXLIB_PJIT_STRICT": "1",
        "XLA_FLAGS": "",  # it asks for its devices itself
    }
    test = source / "tests" / "physical_out_shardings_test.py"
    said = interpreters.run([str(test)], settings=settings).stderr.splitlines()
    assert re.fullmatch(r"Ran 34 tests in \S+", said[-3])
    return said[-1]


def test_upstream_s_own_test_passes_with_the_rule(source: Path) -> None:
    assert outcome_of_upstream_s_own_test(source, "1") == "OK"


def test_upstream_s_own_test_fails_without_the_rule(source: Path) -> None:
    # From 0.11 on, JAX's own conversion is enough for the others.
    failures = 33 if int(version("jax").split(".")[1]) < 11 else 15

    assert outcome_of_upstream_s_own_test(source, "0") == f"FAILED (failures={failures})"


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
    # Its other files need not be there: a shallow or partial copy of upstream will do.
    git(folder, "sparse-checkout", "set", "--no-cone", "/jax/version.py", "/jaxlib/*", "/tests/*")
    commit = git(upstream, "rev-parse", f"{request.param}^{{commit}}").strip()
    git(folder, "checkout", "--quiet", "--detach", commit)
    yield folder


def added_lines(source: Path, name: str) -> list[str]:
    """The options that have clang-format look at what the port added alone."""
    hunks = re.findall(
        r"^@@ .*\+(\d+)(?:,(\d+))? @@", git(source, "diff", "-U0", name), re.MULTILINE
    )
    return [f"--lines={start}:{int(start) + int(length or 1) - 1}" for start, length in hunks]


def test_upstream_s_files_change_by_at_most_40_lines(release: Path) -> None:
    port(release)

    assert lines_changed(release) <= 40
    assert changed(release) - {PJIT_TEST} == {PJIT, LIBRARIES, TESTS, *ADDED}


def test_upstream_is_clean_after_revert(release: Path) -> None:
    port(release)
    port(release, revert=True)

    assert status(release) == ""


def test_clang_format_leaves_what_was_added_as_it_is(release: Path) -> None:
    port(release)
    formatter = ROOT / ".build" / "lint" / "bin" / "clang-format"
    if not formatter.is_file():
        pytest.skip("CI has not installed clang-format yet")

    # Upstream sorts includes by a rule of its own, and keeps no file with it.
    style = "--style={BasedOnStyle: Google, SortIncludes: Never}"
    command = [str(formatter), style, *added_lines(release, PJIT), str(release / PJIT)]
    formatted = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert formatted == (release / PJIT).read_text()


def test_the_include_is_where_upstream_sorts_it(release: Path) -> None:
    port(release)

    text = (release / PJIT).read_text()
    includes = re.findall(r'^#include "(jaxlib/.*)"$', text, re.MULTILINE)[1:]
    assert includes == sorted(includes)
