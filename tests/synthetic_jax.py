"""A source tree with jax's layout and next to nothing in it, written for the tests of the port."""

from __future__ import annotations

import subprocess
from pathlib import Path

VERSION = "jax/version.py"
PJIT = "jaxlib/pjit.cc"
LIBRARIES = "jaxlib/BUILD"
TESTS = "tests/BUILD"
PJIT_TEST = "tests/pjit_test.py"

_PJIT = """\
#include "jaxlib/nb_class_ptr.h"
#include "jaxlib/py_array.h"

class PjitFunction {
  absl::StatusOr<nb::object> Call(nb::handle callable);
  nb::object global_cache_key_;
  nb_class_ptr<PyTreeRegistry> pytree_registry_;
};

absl::StatusOr<nb::object> PjitFunction::Call(nb::handle callable) {
  size_t num_positional_args = 1;
  size_t num_keyword_args = 2;
  ParseArguments(call_signature.arg_signature, flat_dynamic_args);
  if (inserted) {
      try {
        out_tuple = nb::cast<nb::tuple>(out_and_fastpath_data);

        PopulateCacheEntry(*cache_entry, out_tuple);
      }
  }
}

void PjitFunction::PopulateCacheEntry(PjitCacheEntry& cache_entry) {}
"""

_LIBRARIES = """\
cc_library(
    name = "nb_class_ptr",
    deps = [
        ":py_client",
    ],
)

cc_library(
    name = "pjit",
    deps = [
        ":nb_class_ptr",
        ":py_client",
    ],
)
"""

_TESTS = """\
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
    PJIT: _PJIT,
    LIBRARIES: _LIBRARIES,
    TESTS: _TESTS,
    PJIT_TEST: _PJIT_TEST,
    "README.md": "Nothing here is changed.\n",
}


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def checkout(folder: Path, version: str = "0.10.2", files: dict[str, str] | None = None) -> Path:
    """A clean git checkout of the tree, or of one with some files another way."""
    for name, text in {**FILES, VERSION: f'_version = "{version}"\n', **(files or {})}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    """Makes everything that is in a checkout part of it."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All")
