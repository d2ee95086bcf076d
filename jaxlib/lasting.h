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

// Returns the result of the first `make()`, which lives as long as the process.
// It is for objects that JAX itself never drops. Looking them up on each slow
// dispatch would cost a small dispatch more than all the rest.
//
// Each lambda has a type of its own, which identifies the object. If `make`
// returns null, this returns null, and the next call tries again. Two threads,
// or a `make` that calls this again, may each make an object: all get the one
// that was kept, and the others are dropped. No lock is held while `make` runs.
// Passes on any exception of `make`.
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
