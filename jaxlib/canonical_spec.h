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

#ifndef JAXLIB_CANONICAL_SPEC_H_
#define JAXLIB_CANONICAL_SPEC_H_

#include "nanobind/nanobind.h"

namespace jax {

// Returns `spec` without the parts that say nothing on `mesh`: trailing `None`s
// and axes of size one, unless an axis is explicit and so part of an array's
// type. Keeps everything else, such as unreduced axes. Returns `spec` itself if
// there is nothing to leave out.
//
// Two specs say the same if their canonical specs compare equal.
//
// Caution: runs Python code, which may release the GIL.
nanobind::object CanonicalSpec(nanobind::handle spec, nanobind::handle mesh);

}  // namespace jax

#endif  // JAXLIB_CANONICAL_SPEC_H_
