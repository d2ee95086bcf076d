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

#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// Whether `axis` splits nothing, and is not part of an array's type.
bool SaysNothing(nb::handle axis, nb::handle mesh) {
  nb::object size = mesh.attr("shape").attr("get")(axis);
  if (!size.equal(nb::int_(1))) return false;
  nb::object explicit_axes = mesh.attr("explicit_axes");
  return !nb::cast<bool>(explicit_axes.attr("__contains__")(axis));
}

// `entry`, the axes of one dimension, without those that say nothing.
nb::object CanonicalEntry(nb::handle entry, nb::handle mesh) {
  if (entry.is_none()) return nb::none();
  if (!nb::isinstance<nb::tuple>(entry)) {
    return SaysNothing(entry, mesh) ? nb::none() : nb::borrow(entry);
  }
  nb::list axes;
  for (nb::handle axis : entry) {
    if (!SaysNothing(axis, mesh)) axes.append(axis);
  }
  return nb::len(axes) == 0 ? nb::none() : nb::object(nb::tuple(axes));
}

}  // namespace

nb::object CanonicalSpec(nb::handle spec, nb::handle mesh) {
  nb::object partitions = spec.attr("_partitions");
  nb::list entries;
  size_t size = 0;  // Without trailing `None`s.
  for (nb::handle entry : partitions) {
    entries.append(CanonicalEntry(entry, mesh));
    if (!entries[nb::len(entries) - 1].is_none()) size = nb::len(entries);
  }
  nb::object canonical =
      nb::steal(PyTuple_GetSlice(nb::tuple(entries).ptr(), 0, size));
  if (canonical.equal(partitions)) return nb::borrow(spec);
  return spec.attr("update")(nb::arg("partitions") = canonical);
}

}  // namespace jax
