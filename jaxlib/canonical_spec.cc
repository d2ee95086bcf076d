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

#include "jaxlib/canonical_spec.h"

#include <Python.h>

#include <cstddef>
#include <vector>

#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// Whether `axis` splits nothing, and is not part of an array's type.
bool SaysNothing(nb::handle axis, nb::handle mesh) {
  nb::object size = mesh.attr("shape").attr("get")(axis);
  if (!size.equal(nb::int_(1))) return false;
  nb::object explicit_axes = mesh.attr("explicit_axes");
  int is_explicit = PySequence_Contains(explicit_axes.ptr(), axis.ptr());
  if (is_explicit < 0) nb::raise_python_error();
  return is_explicit == 0;
}

nb::object MakeTuple(const std::vector<nb::object>& items) {
  nb::object tuple = nb::steal(PyTuple_New(items.size()));
  if (!tuple) nb::raise_python_error();
  for (size_t i = 0; i < items.size(); ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), i, nb::object(items[i]).release().ptr());
  }
  return tuple;
}

// `entry` of one dimension, as `PartitionSpec` spells it: `None`, an axis, or
// a tuple of more than one.
nb::object CanonicalEntry(nb::handle entry, nb::handle mesh) {
  if (entry.is_none()) return nb::none();
  if (!nb::isinstance<nb::tuple>(entry)) {
    return SaysNothing(entry, mesh) ? nb::none() : nb::borrow(entry);
  }
  std::vector<nb::object> axes;
  for (nb::handle axis : entry) {
    if (!SaysNothing(axis, mesh)) axes.push_back(nb::borrow(axis));
  }
  if (axes.empty()) return nb::none();
  return axes.size() == 1 ? axes[0] : MakeTuple(axes);
}

}  // namespace

nb::object CanonicalSpec(nb::handle spec, nb::handle mesh) {
  nb::object partitions = spec.attr("_partitions");
  std::vector<nb::object> entries;
  for (nb::handle entry : partitions) {
    entries.push_back(CanonicalEntry(entry, mesh));
  }
  while (!entries.empty() && entries.back().is_none()) entries.pop_back();
  nb::object canonical = MakeTuple(entries);
  if (canonical.equal(partitions)) return nb::borrow(spec);
  return spec.attr("update")(nb::arg("partitions") = canonical);
}

}  // namespace jax
