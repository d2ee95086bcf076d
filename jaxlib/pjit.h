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

#ifndef JAXLIB_PJIT_H_
#define JAXLIB_PJIT_H_

#include "nanobind/nanobind.h"

namespace jax {

// Gives `_jax`, jaxlib's C++ module, a `pjit` whose functions attach physical
// shardings to their outputs of extended dtypes.
//
// The new `pjit` has the signature of the module's own `pjit`. It wraps
// `cache_miss` with `MakeCacheMiss` and calls the module's own `pjit`, so it
// returns an ordinary `PjitFunction`. A call that it does not understand goes
// to the module's own `pjit` unchanged, which then raises its own errors. An
// unpickled `PjitFunction` is wrapped in the same way.
//
// Installing twice changes nothing. Throws nanobind::python_error if the module
// has no `pjit` or no `PjitFunction`, and then does not change the module.
void InstallPjit(nanobind::handle jax_module);

}  // namespace jax

#endif  // JAXLIB_PJIT_H_
