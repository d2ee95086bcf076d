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

// Whether slow dispatches are explained: while `jax_explain_cache_misses` is
// on, or `SetExplaining` was told so. One flag is read, or two.
bool IsExplaining();

// Counts those who want slow dispatches explained whatever JAX's flag says:
// each `true` is taken back by one `false`. Any thread may call it.
void SetExplaining(bool explaining);

// The explanation of one slow dispatch, which `jaxlib._fastpath_explain` gives.
// Make it before the dispatch, since that may delete its arguments.
//
// Needs the GIL, or an attached thread state. A failure is treated as one of
// the rule is; see `StepAside`.
class MissExplanation {
 public:
  // `cache_miss` is the callable of `MakeCacheMiss`; the rest are a
  // vectorcall's arguments. Returns false, with the Python exception set, if
  // the failure has to be raised.
  bool Begin(nanobind::handle cache_miss, PyObject* const* args, size_t nargsf,
             PyObject* kwnames);

  // `dispatched` is what the dispatch returned, or null if it raised; the
  // pending exception then stays. Returns false as `Begin` does.
  bool End(nanobind::handle dispatched);

 private:
  nanobind::object begun_;
};

}  // namespace jax

#endif  // JAXLIB_WHEEL_MISS_EXPLANATION_H_
