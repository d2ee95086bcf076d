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

#ifndef JAXLIB_PHYSICAL_OUT_SHARDINGS_H_
#define JAXLIB_PHYSICAL_OUT_SHARDINGS_H_

#include <cstddef>
#include <optional>

#include "jaxlib/dispatch_tree.h"
#include "nanobind/nanobind.h"

namespace jax {

// The shardings that the fastpath attaches to the outputs of one executable,
// one for each base array.
//
// An output of an extended dtype (a PRNG key array, say) is dispatched as its
// base array, so what the fastpath attaches to it must be the *physical*
// sharding. Python describes the executable in *logical* shardings. The table
// is computed once, on the slow dispatch that fills the cache entry; a fastpath
// hit only reads it.
struct PhysicalOutShardings {
  // The outputs of the dispatch.
  DispatchTree outputs;

  // In the order of `fastpath_data.out_avals`. The entry of an extended
  // output's base array is the sharding that this dispatch put on that array.
  // Any other entry is the object in Python's list.
  nanobind::list shardings;

  // The number of entries that differ from the object in Python's list.
  size_t num_physical = 0;
};

// Makes the table of `dispatched`, the result of the Python dispatch function:
// (outputs, fastpath_data or None, ...). Returns nullopt if no table is needed,
// without fastpath data or without an extended output. `registry` is the
// dispatch pytree registry.
//
// Mutates none of its arguments and keeps no state. Needs the GIL, or an
// attached thread state in free-threaded Python. Throws std::invalid_argument
// if `dispatched` does not have the expected form, and nanobind::python_error
// if a Python call fails.
std::optional<PhysicalOutShardings> MakePhysicalOutShardings(
    nanobind::handle dispatched, nanobind::handle registry);

// Returns `dispatched` with the table in its fastpath data, and with `outputs`.
nanobind::object WithPhysicalOutShardings(nanobind::handle dispatched,
                                          const PhysicalOutShardings& table,
                                          nanobind::handle outputs);

}  // namespace jax

#endif  // JAXLIB_PHYSICAL_OUT_SHARDINGS_H_
