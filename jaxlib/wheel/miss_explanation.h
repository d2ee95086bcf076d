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

#ifndef JAXLIB_WHEEL_MISS_EXPLANATION_H_
#define JAXLIB_WHEEL_MISS_EXPLANATION_H_

#include <Python.h>

#include "nanobind/nanobind.h"

namespace jax {

// Whether slow dispatches are explained: if `jax_explain_cache_misses` is on,
// or by `SetExplaining`. It reads one flag, or two.
bool IsExplaining();

// Counts the requests to explain slow dispatches, whatever JAX's flag says.
// Each `true` needs one `false` later. Any thread may call it.
void SetExplaining(bool explaining);

// The explanation of one slow dispatch, by `jaxlib._fastpath_explain`. It has
// to begin before the dispatch, which may delete its arguments.
//
// Needs the GIL, or an attached thread state. A failure is handled like one of
// the rule; see `StepAside`.
class MissExplanation {
 public:
  // `cache_miss` is the callable of `MakeCacheMiss`. The rest are the arguments
  // of a vectorcall. Returns false, with the Python exception set, if a failure
  // has to be raised.
  bool Begin(nanobind::handle cache_miss, PyObject* const* args, size_t nargsf,
             PyObject* kwnames);

  // `dispatched` is the result of the dispatch. It is null if the dispatch
  // raised, and then the pending exception stays. Returns false like `Begin`.
  bool End(nanobind::handle dispatched);

 private:
  nanobind::object begun_;
};

}  // namespace jax

#endif  // JAXLIB_WHEEL_MISS_EXPLANATION_H_
