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

#include "jaxlib/dispatch_tree.h"

#include <Python.h>

#include <cstddef>
#include <vector>

#include "jaxlib/lasting.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

nb::handle DefaultRegistry() {
  return Lasting([] {
    return nb::object(
        nb::module_::import_("jaxlib._jax.pytree").attr("default_registry")());
  });
}

bool HasOnlyArraysOf(PyObject* tree, PyTypeObject* array_type) {
  if (Py_IS_TYPE(tree, array_type) || tree == Py_None) return true;
  if (PyTuple_CheckExact(tree)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tree); ++i) {
      if (!HasOnlyArraysOf(PyTuple_GET_ITEM(tree, i), array_type)) return false;
    }
    return true;
  }
  // Waiting for a child's lock may release this one. Another thread can then
  // change the list or dict and drop its children, so each child is held.
  if (PyList_CheckExact(tree)) {
    nb::ft_object_guard lock(tree);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tree); ++i) {
      nb::object child = nb::borrow(PyList_GET_ITEM(tree, i));
      if (!HasOnlyArraysOf(child.ptr(), array_type)) return false;
    }
    return true;
  }
  if (PyDict_CheckExact(tree)) {
    nb::ft_object_guard lock(tree);
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(tree, &position, &key, &value)) {
      nb::object child = nb::borrow(value);
      if (!HasOnlyArraysOf(child.ptr(), array_type)) return false;
    }
    return true;
  }
  return false;
}

}  // namespace

nb::handle ArrayType() {
  return Lasting([] {
    return nb::object(nb::module_::import_("jaxlib._jax").attr("ArrayImpl"));
  });
}

bool HasOnlyArrays(nb::handle tree) {
  auto* array_type = reinterpret_cast<PyTypeObject*>(ArrayType().ptr());
  return HasOnlyArraysOf(tree.ptr(), array_type);
}

size_t NumLeaves(nb::handle tree) {
  nb::object flattened = DefaultRegistry().attr("flatten")(tree);
  nb::object leaves = flattened[0];
  return nb::len(leaves);
}

DispatchTree::DispatchTree(nb::handle dispatch_registry, nb::handle tree)
    : tree_(nb::borrow(tree)), leaves_(Flatten(DefaultRegistry(), tree)) {
  for (size_t i = 0; i < num_leaves(); ++i) {
    if (!Leaf(i).type().is(ArrayType())) others_.push_back(i);
  }
  if (others_.empty()) return;
  nb::object others = nb::steal(PyList_New(0));
  if (!others) nb::raise_python_error();
  for (size_t leaf : others_) nb::cast<nb::list>(others).append(Leaf(leaf));
  bases_ = Flatten(dispatch_registry, others);

  std::vector<size_t> counts = CountBases();
  size_t base = 0;
  for (size_t i = 0; i < others_.size(); ++i) {
    if (AreArrays(base, counts[i])) {
      extended_.push_back({others_[i], others_[i] - i + base, base, counts[i]});
    }
    base += counts[i];
  }
}

DispatchTree::Flattened DispatchTree::Flatten(nb::handle registry,
                                              nb::handle tree) {
  nb::object flattened = registry.attr("flatten")(tree);
  return {nb::cast<nb::list>(flattened[0]), nb::object(flattened[1])};
}

nb::handle DispatchTree::Leaf(size_t i) const {
  return PyList_GET_ITEM(leaves_.leaves.ptr(), i);
}

// The number of base arrays of each of the other leaves. Equal totals do not
// mean one each.
std::vector<size_t> DispatchTree::CountBases() const {
  if (others_.size() == 1) return {nb::len(bases_.leaves)};
  std::vector<size_t> counts;
  counts.reserve(others_.size());
  nb::object subtrees = bases_.treedef.attr("children")();
  for (nb::handle subtree : subtrees) {
    counts.push_back(nb::cast<size_t>(subtree.attr("num_leaves")));
  }
  return counts;
}

bool DispatchTree::AreArrays(size_t base, size_t num_bases) const {
  for (size_t i = base; i < base + num_bases; ++i) {
    nb::handle array = PyList_GET_ITEM(bases_.leaves.ptr(), i);
    if (!array.type().is(ArrayType())) return false;
  }
  return true;
}

nb::object DispatchTree::Rebuilt() {
  nb::object others = bases_.treedef.attr("unflatten")(bases_.leaves);
  for (size_t i = 0; i < others_.size(); ++i) {
    leaves_.leaves[others_[i]] = others[i];
  }
  return leaves_.treedef.attr("unflatten")(leaves_.leaves);
}

}  // namespace jax
