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

#ifndef JAXLIB_LASTING_H_
#define JAXLIB_LASTING_H_

#include <Python.h>

#include <atomic>

#include "nanobind/nanobind.h"

namespace jax {

// Returns what the first `make()` returned, which lives as long as the process.
// For what JAX itself never drops, where to look it up on each slow dispatch
// would cost a small one more than all else.
//
// The type of `make`, a lambda's, tells one from another. If `make` returns
// null, so does this, and the next call makes it anew. Threads, and a `make`
// that comes back here, may each make one: all get the one that was kept, and
// the others are dropped. No lock is held while `make` runs. Passes on what
// `make` throws.
template <typename Make>
nanobind::handle Lasting(Make make) {
  static std::atomic<PyObject*> kept{nullptr};
  PyObject* known = kept.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  nanobind::object made = make();
  if (made && kept.compare_exchange_strong(known, made.ptr(),
                                           std::memory_order_acq_rel)) {
    known = made.release().ptr();
  }
  return known;
}

}  // namespace jax

#endif  // JAXLIB_LASTING_H_
