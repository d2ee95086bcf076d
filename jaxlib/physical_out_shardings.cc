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

#include "jaxlib/physical_out_shardings.h"

#include <Python.h>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>

#include "jaxlib/dispatch_tree.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// nanobind's own constructor does not check for a failed allocation.
nb::list EmptyList() {
  PyObject* list = PyList_New(0);
  if (list == nullptr) nb::raise_python_error();
  return nb::steal<nb::list>(list);
}

}  // namespace

std::optional<PhysicalOutShardings> MakePhysicalOutShardings(
    nb::handle dispatched, nb::handle registry) {
  if (!nb::isinstance<nb::tuple>(dispatched) || nb::len(dispatched) < 2) {
    throw std::invalid_argument(
        "the dispatch function did not return (outputs, fastpath_data, ...)");
  }
  nb::object outputs = dispatched[0];
  nb::object fastpath_data = dispatched[1];
  if (fastpath_data.is_none() || HasOnlyArrays(outputs)) return std::nullopt;
  DispatchTree tree(registry, outputs);
  if (tree.extended().empty()) return std::nullopt;

  nb::object out_shardings = fastpath_data.attr("out_shardings");
  nb::list stock(out_shardings);  // `out_shardings` may be any sequence.
  if (nb::len(stock) != tree.num_leaves()) {
    throw std::invalid_argument(
        "fastpath_data.out_shardings has another length than the outputs");
  }
  nb::list shardings = EmptyList();
  size_t num_physical = 0, next = 0;
  for (const ExtendedLeaf& output : tree.extended()) {
    for (; next < output.leaf; ++next) shardings.append(stock[next]);
    ++next;
    for (size_t i = 0; i < output.num_bases; ++i) {
      nb::object base = tree.bases()[output.first_base + i];
      nb::object sharding = base.attr("sharding");
      num_physical += !sharding.is(stock[output.leaf]);
      shardings.append(sharding);
    }
  }
  for (; next < nb::len(stock); ++next) shardings.append(stock[next]);
  nb::object out_avals = fastpath_data.attr("out_avals");
  if (nb::len(shardings) != nb::len(out_avals)) {
    throw std::invalid_argument(
        "fastpath_data.out_avals has another length than the base arrays");
  }
  return PhysicalOutShardings{std::move(tree), std::move(shardings),
                              num_physical};
}

nb::object WithPhysicalOutShardings(nb::handle dispatched,
                                    const PhysicalOutShardings& table,
                                    nb::handle outputs) {
  nb::list result(dispatched);
  result[0] = outputs;
  result[1] = dispatched[1].attr("_replace")(nb::arg("out_shardings") =
                                                 table.shardings);
  return nb::tuple(result);
}

}  // namespace jax
