/* Copyright 2026 The JAX Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
==============================================================================*/

#ifndef JAXLIB_DISPATCH_TREE_H_
#define JAXLIB_DISPATCH_TREE_H_

#include <Python.h>

#include <cstddef>
#include <vector>

#include "nanobind/nanobind.h"

namespace jax {

// The type of JAX's arrays.
nanobind::handle ArrayType();

// Whether a pytree of Python's own containers contains only arrays. This is the
// common case, and must cost next to nothing. False for any other node.
//
// Caution: in free-threaded Python another thread may change a list or a dict
// in the meantime. Then the answer may fit neither state.
bool HasOnlyArrays(nanobind::handle tree);

// The number of leaves of a pytree in the default registry.
size_t NumLeaves(nanobind::handle tree);

// A leaf of the default pytree registry that is not a jax Array, but a node of
// the dispatch registry. Its children there are jax Arrays, its base arrays.
struct ExtendedLeaf {
  size_t leaf;         // Its index among the leaves of the default registry.
  size_t table_index;  // Index of its first base array in the dispatch,
  size_t first_base;   // and in `DispatchTree::bases`.
  size_t num_bases;
};

// A pytree as both registries see it. It keeps its leaves alive.
//
// Needs the GIL, or an attached thread state. Every member may throw
// nanobind::python_error.
class DispatchTree {
 public:
  DispatchTree(nanobind::handle dispatch_registry, nanobind::handle tree);

  nanobind::handle tree() const { return tree_; }

  // The number of leaves in the default registry.
  size_t num_leaves() const { return nanobind::len(leaves_.leaves); }
  const std::vector<ExtendedLeaf>& extended() const { return extended_; }

  // The base arrays of all leaves that are not arrays. Valid only if there is
  // an extended leaf.
  nanobind::list& bases() { return bases_.leaves; }

  // A new tree with the current `bases`. `tree` does not change.
  nanobind::object Rebuilt();

 private:
  struct Flattened {
    nanobind::list leaves;
    nanobind::object treedef;
  };

  static Flattened Flatten(nanobind::handle registry, nanobind::handle tree);
  nanobind::handle Leaf(size_t i) const;
  std::vector<size_t> CountBases() const;
  bool AreArrays(size_t base, size_t num_bases) const;

  nanobind::object tree_;
  Flattened leaves_;            // Of the default registry.
  std::vector<size_t> others_;  // The leaves that are not arrays.
  Flattened bases_;             // Of the others, in the dispatch registry.
  std::vector<ExtendedLeaf> extended_;
};

}  // namespace jax

#endif  // JAXLIB_DISPATCH_TREE_H_
