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
// jaxlib's fastpath treats two spellings of one placement as two signatures,
// and a wheel cannot change that comparison. But it can give an output the
// spelling of an argument. If the output is fed back, it then has the signature
// of that argument. Python gives each base array of an extended output a
// `natural` spelling. For each of them:
//
// * If an extended argument of this call has the same placement in the
//   `natural` spelling, the output is not changed. It may replace that argument
//   in the next call, and stock jaxlib finds that call in its cache.
// * Otherwise it takes the spelling of the arguments with the same placement,
//   if they have only one. Which of several it would need cannot be known.
// * The first dispatch of a function decides for a shape, dtype and `natural`
//   sharding. All outputs and all later dispatches of the function follow.
//
// So where stock gives outputs one spelling, this gives them one spelling, and
// the signatures of a function are stock's with one spelling replaced. There
// are never more of them, whichever output is fed back as whichever argument.
//
// The same placement means: the same shape, dtype, type of sharding, mesh
// object, memory kind and logical device ids, specs that say the same (see
// `CanonicalSpec`), and equivalence according to JAX. If the caller asks for
// the sharding of an output, by `jit(out_shardings=...)`, it is not changed.
//
// Caution: this cannot know which argument an output will become. So it keeps
// what stock has before it gains anything. It does not see
// * keys from outside that arrive after the first dispatch. One that has
//   stock's spelling of an output (`natural`, or the logical one before jax
//   0.11) has a signature that stock may know by then, and this may not.
// * other functions. If outputs of several functions become arguments of one,
//   they may be spelled differently. Stock's are not.

// The most decisions to keep for one function. One more, and all are forgotten.
inline constexpr Py_ssize_t kMaxDecided = 1024;

// Puts the new spellings into `table`, and arrays with them into
// `table.outputs.bases()`. The arrays share the buffers of the old ones.
// Returns the number of new spellings.
//
// `args` are the dynamic arguments of the call, positional and keyword values,
// not flattened. They may have been donated, so only the aval and the sharding
// of an array are read. `registry` is the dispatch pytree registry, and
// `global_cache_key` is the one that `pjit` got. `decided` is the memory of one
// jitted function: a dict that is empty at first and that only this writes to.
// Threads may share it.
//
// Needs the GIL, or an attached thread state. Throws nanobind::python_error if
// a Python call fails. Then a part of `table` may have changed.
size_t SpellLikeArguments(PhysicalOutShardings& table,
                          absl::Span<PyObject* const> args,
                          nanobind::handle registry,
                          nanobind::handle global_cache_key,
                          nanobind::handle decided);

}  // namespace jax

#endif  // JAXLIB_WHEEL_ARGUMENT_SPELLING_H_
