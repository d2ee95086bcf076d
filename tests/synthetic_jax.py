"""A source tree with jax's layout and almost no code, written for the tests of the port."""

from __future__ import annotations

import subprocess
from pathlib import Path

VERSION = "jax/version.py"
SHARDING_H = "jaxlib/sharding.h"
SHARDING = "jaxlib/sharding.cc"
JAX_JIT = "jaxlib/jax_jit.cc"
STUB = "jaxlib/_jax/jax_jit.pyi"
PJIT = "jaxlib/pjit.cc"
TESTS = "tests/BUILD"
PJIT_TEST = "tests/pjit_test.py"

_SHARDING_H = """\
namespace jax {

class Sharding {
  static nanobind::handle type() { return type_; }
};

class SingleDeviceSharding : public Sharding {
  static nanobind::handle type() { return type_; }
  static PyObject* type_;
};

class NamedSharding : public Sharding {
 public:
  static nanobind::handle type() { return type_; }

 private:
  mutable CachedPyObject hash_;
  static PyObject* type_;
};

}  // namespace jax
"""

_SHARDING = """\
namespace jax {

NamedSharding::NamedSharding(nb::object mesh, nb::object spec) {}

bool NamedSharding::operator==(const NamedSharding& other) const {
  return true;
}

}  // namespace jax
"""

_JAX_JIT = """\
size_t HashShardingForJit(nb::handle sharding) {
  return absl::Hash<void*>()(named_sharding->mesh().ptr());
}

bool EqualShardingsForJit(nb::handle a, nb::handle b) {
    return a_named_sharding->mesh().ptr() == b_named_sharding->mesh().ptr() &&
           a_named_sharding->spec().equal(b_named_sharding->spec()) &&
           a_named_sharding->memory_kind().equal(
               b_named_sharding->memory_kind());
}

void BuildJaxjitSubmodule(nb::module_& m) {
  nb::class_<PyArgSignature> arg_signature(jitlib, "PyArgSignature");
}
"""

_STUB = """\
class ArgumentSignature: ...

def parse_arguments(
    positional_args: Sequence[object],
) -> ArgumentSignature: ...
"""

_PJIT = """\
struct PjitCacheEntry {
  std::vector<nb::object> out_shardings;
  std::vector<bool> out_committed;
};

absl::StatusOr<nb::object> PjitFunction::Call(nb::handle callable,
                                              size_t nargs) {
    PyArray py_array(
        cache_entry->out_avals[i],
        cache_entry->out_shardings[i], cache_entry->executable->client(),
        std::move(output_arrays[i]),
        /*committed=*/true);
}

absl::Status PjitFunction::ComputeCallSignature(
    absl::Span<nb::object const> flat_dynamic_args) {
      auto py_array = nb::borrow<PyArray>(arg);
      signature.dynamic_arg_shardings.push_back(py_array.sharding());
}

void PjitFunction::PopulateCacheEntry(PjitCacheEntry& cache_entry,
                                      const nb::tuple& out_and_fastpath_data) {
  cache_entry.out_pytree_def = nb::cast<PyTreeDef>(out_pytree_def);

  nb::sequence kept_var_bitvec = fastpath_data.attr("kept_var_bitvec");
}
"""

_TESTS = """\
jax_multiplatform_test(
    name = "fft_test",
)

jax_multiplatform_test(
    name = "pjit_test",
)
"""

_PJIT_TEST = """\
  def test_partial_sharded_prng_key_inp(self):
    self.assertEqual(out.sharding, NamedSharding(mesh, P('x')))

    self.assertEqual(base_array.sharding, NamedSharding(mesh, P('x')))

    self.assertEqual(1, NamedSharding(mesh, P('x')))
"""

FILES = {
    SHARDING_H: _SHARDING_H,
    SHARDING: _SHARDING,
    JAX_JIT: _JAX_JIT,
    STUB: _STUB,
    PJIT: _PJIT,
    TESTS: _TESTS,
    PJIT_TEST: _PJIT_TEST,
    "README.md": "Nothing here is changed.\n",
}

# The text of a line before a release.
_OLDER = {
    (0, 10): (
        (
            JAX_JIT,
            "a_named_sharding->spec().equal(b_named_sharding->spec())",
            "*a_named_sharding->spec() == *b_named_sharding->spec()",
        ),
    ),
    (0, 8): ((PJIT, "        std::move(output", "        traceback, std::move(output"),),
    (0, 7): (
        (JAX_JIT, "<PyArgSignature>", "<xla::PyArgSignature>"),
        (PJIT, " PyArray py_array", " xla::PyArray py_array"),
    ),
}


def files_of(version: str) -> dict[str, str]:
    """The tree of a release."""
    release = tuple(int(number) for number in version.split(".")[:2])
    files = {**FILES, VERSION: f'_version = "{version}"\n'}
    for until, lines in _OLDER.items():
        for file, line, older in lines if release < until else ():
            files[file] = files[file].replace(line, older)
    return files


def git(folder: Path, *arguments: str) -> str:
    """The output of git."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def checkout(folder: Path, version: str = "0.10.2", files: dict[str, str] | None = None) -> Path:
    """A clean git checkout of the tree, with some files changed."""
    for name, text in {**files_of(version), **(files or {})}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    """Commits everything in a checkout."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All")
