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

// Returns the `PartitionSpec` that says of each dimension what `spec` says, and
// leaves out what says nothing on `mesh`: trailing `None`s, and axes of size
// one, unless they are explicit and so part of an array's type. All else that a
// spec has, such as its unreduced axes, is kept. Returns `spec` itself if there
// is nothing to leave out.
//
// Two specs say the same if what this returns for them compares equal.
//
// Caution: runs Python code, and so may release the GIL.
nanobind::object CanonicalSpec(nanobind::handle spec, nanobind::handle mesh);

}  // namespace jax

#endif  // JAXLIB_CANONICAL_SPEC_H_
