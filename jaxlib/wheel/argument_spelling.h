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

#ifndef JAXLIB_WHEEL_ARGUMENT_SPELLING_H_
#define JAXLIB_WHEEL_ARGUMENT_SPELLING_H_

#include <Python.h>

#include <cstddef>

#include "absl/types/span.h"
#include "jaxlib/physical_out_shardings.h"
#include "nanobind/nanobind.h"

namespace jax {

// Spells extended outputs like the arguments that they may be fed back as.
//
// jaxlib's fastpath holds two spellings of one placement for two signatures,
// and a wheel cannot change that comparison. It can give an output the spelling
// of an argument: fed back, the output is then the signature that the argument
// was. For each base array of an extended output, spelled `natural` by Python:
//
// * If an extended argument of this call is placed alike and spelled `natural`,
//   the output is left as it is. It may be that argument's successor, which
//   stock jaxlib finds in its cache.
// * Else it takes the spelling of the arguments that are placed alike, if they
//   have just one. Which of several it would need cannot be known.
// * What the first dispatch of a function has decided for a shape, dtype and
//   `natural` sharding holds for all outputs and all later dispatches of it.
//
// So a function's outputs have one spelling where stock's have one, and its
// signatures are stock's with a spelling replaced: never more of them,
// whichever output is fed back as whichever argument.
//
// Placed alike: of one shape, dtype and type of sharding, the same mesh object,
// memory kind and logical device ids, specs that say the same (see
// `CanonicalSpec`), and equivalent to JAX. An output that the caller asked a
// sharding for, by `jit(out_shardings=...)`, keeps it.
//
// Caution: what an output will be fed back as cannot be known here, so this
// keeps what stock has before it gains what stock has not. It does not see
// * keys from outside that come after the first dispatch. One that is spelled
//   as stock would spell an output (`natural`, or before jax 0.11 logically) is
//   a signature that stock may have by then, and this may not.
// * other functions. Where the outputs of several meet as arguments of one,
//   they may be spelled differently, which stock's are not.

// The most decisions kept of one function. With one more all are forgotten.
inline constexpr Py_ssize_t kMaxDecided = 1024;

// Puts the spellings into `table`, and arrays on them, which share the buffers
// of the old ones, into `table.outputs.bases()`. Returns how many.
//
// `args` are the dynamic arguments of the call, positional and keyword values,
// not flattened. They may have been donated: no more than the aval and the
// sharding of an array is read. `registry` is the dispatch pytree registry, and
// `global_cache_key` the one given to `pjit`. `decided` is the memory of one
// jitted function: a dict, empty at first, that nothing else writes to. Threads
// may share it.
//
// Needs the GIL, or an attached thread state. Throws nanobind::python_error if
// a Python call fails; `table` may then have been changed in part.
size_t SpellLikeArguments(PhysicalOutShardings& table,
                          absl::Span<PyObject* const> args,
                          nanobind::handle registry,
                          nanobind::handle global_cache_key,
                          nanobind::handle decided);

}  // namespace jax

#endif  // JAXLIB_WHEEL_ARGUMENT_SPELLING_H_
