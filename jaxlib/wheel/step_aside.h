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

#ifndef JAXLIB_WHEEL_STEP_ASIDE_H_
#define JAXLIB_WHEEL_STEP_ASIDE_H_

#include <Python.h>

#include <array>
#include <atomic>
#include <cstddef>

// What this wheel does when a part of it fails: what stock jaxlib would do.

namespace jax {

// The parts that can fail, each by itself: a warning of one says nothing of
// another.
enum class Part { kWrapping, kRule, kExplanation };
inline constexpr size_t kNumParts = 3;

// Any thread may read it, and write what is not const.
struct StepAsideState {
  StepAsideState();

  // Whether a failure raises. JAXLIB_PJIT_STRICT=1 turns it on.
  const bool strict;
  // Whether a failure of each part has been logged.
  std::array<std::atomic<bool>, kNumParts> warned = {};
};

StepAsideState& GetStepAsideState();

// Takes the pending Python exception, logs the first of the process and `part`
// as a warning on the logger `jaxlib.pjit`, and clears it. Leaves it pending
// and returns false if it has to be raised: in strict mode, and if it is not an
// `Exception`, like KeyboardInterrupt.
bool StepAside(Part part);

// Turns the C++ exception being handled into the pending Python exception, of
// the type that nanobind would raise: ValueError for std::invalid_argument,
// MemoryError for std::bad_alloc, RuntimeError for any other. Call it in a
// catch block only.
void SetPythonError();

// Whether a flag in the environment is on, in the words that JAX's flags take:
// 1, true, t, on, yes, y, or 0, false, f, off, no, n, in any case. `otherwise`
// if it is not set or empty; with a warning, as above, if it is another word.
bool EnvironmentFlag(const char* name, bool otherwise);

}  // namespace jax

#endif  // JAXLIB_WHEEL_STEP_ASIDE_H_
