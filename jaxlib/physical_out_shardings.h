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

#include <Python.h>

#include <cstddef>

#include "absl/types/span.h"
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
  // In the order of `fastpath_data.out_avals`. Null where no output is
  // extended: what Python returned is right as it is.
  nanobind::object shardings;

  // Entries that are not the object that Python's list holds.
  size_t num_physical = 0;

  // Entries that took the spelling of an argument, so that the output, fed
  // back, is the signature that the argument was.
  size_t num_respelled = 0;
};

// Returns `dispatched` with a table of physical shardings as the
// `out_shardings` of its fastpath data.
//
// `dispatched` is what the Python dispatch function returned:
//   (outputs, fastpath_data or None, ...).
// `args` are that call's dynamic arguments, positional and keyword values, not
// flattened. They may have been donated: no more than the aval and the sharding
// of an array is read. `registry` is the dispatch pytree registry, and
// `global_cache_key` the one given to `pjit`.
//
// An output is extended if it is a leaf of the default pytree registry, but a
// node of the dispatch registry. For each of its base arrays:
// * the table takes the sharding that Python put on the array in this call;
// * unless an extended argument has a base array of the same shape and dtype
//   whose sharding places it alike, but compares unequal, and the caller did
//   not ask for a sharding of this output. The table then takes the argument's
//   sharding, and the array in the result is rebuilt on it, sharing its
//   buffers. The argument at the same position among the extended leaves comes
//   first, then the first in order.
// All other entries keep the very object that Python gave, and all other
// outputs the very array.
//
// Returns `dispatched` itself if there is nothing to change: no fastpath data,
// no extended output, or each entry right already. Neither `dispatched` nor
// what it holds is mutated. If `table` is not null it is filled in.
//
// Needs the GIL, or an attached thread state in free-threaded Python; keeps no
// state. Throws std::invalid_argument if `dispatched` does not have the
// expected form, and nanobind::python_error if a Python call fails.
nanobind::object WithPhysicalOutShardings(
    nanobind::object dispatched, absl::Span<PyObject* const> args,
    nanobind::handle registry, nanobind::handle global_cache_key,
    PhysicalOutShardings* table = nullptr);

}  // namespace jax

#endif  // JAXLIB_PHYSICAL_OUT_SHARDINGS_H_
