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

// Whether a pytree of Python's own containers has nothing but arrays in it,
// which is the common case, and must cost next to nothing. False for any other
// node. In free-threaded Python another thread may change a list or a dict in
// the meantime: the answer is then of one state or the other, or of neither.
bool HasOnlyArrays(nanobind::handle tree);

// How many leaves a pytree has in the default registry.
size_t NumLeaves(nanobind::handle tree);

// A leaf of the default pytree registry that is not a jax Array, but a node of
// the dispatch registry with nothing but jax Arrays under it, its base arrays.
struct ExtendedLeaf {
  size_t leaf;         // Where it is among the leaves of the default registry.
  size_t table_index;  // Where its base arrays begin among those of dispatch,
  size_t first_base;   // and among those of `DispatchTree::bases`.
  size_t num_bases;
};

// A pytree as both registries see it. It holds the leaves, and so the arrays.
//
// Needs the GIL, or an attached thread state. All of it may throw
// nanobind::python_error.
class DispatchTree {
 public:
  DispatchTree(nanobind::handle dispatch_registry, nanobind::handle tree);

  nanobind::handle tree() const { return tree_; }

  // In the default registry.
  size_t num_leaves() const { return nanobind::len(leaves_.leaves); }
  const std::vector<ExtendedLeaf>& extended() const { return extended_; }

  // The base arrays of all leaves that are not arrays. Valid if there is an
  // extended leaf.
  nanobind::list& bases() { return bases_.leaves; }

  // A tree with what `bases` has now. `tree` stays as it is.
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
  std::vector<size_t> others_;  // Those of them that are not arrays.
  Flattened bases_;             // Of the others, in the dispatch registry.
  std::vector<ExtendedLeaf> extended_;
};

}  // namespace jax

#endif  // JAXLIB_DISPATCH_TREE_H_
