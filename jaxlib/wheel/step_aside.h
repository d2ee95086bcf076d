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

// If a part of this wheel fails, it steps aside and leaves the work to stock.

namespace jax {

// The parts that can fail independently. A warning about one does not silence
// another.
enum class Part { kWrapping, kRule, kExplanation };
inline constexpr size_t kNumParts = 3;

// Any thread may read it, and write the members that are not const.
struct StepAsideState {
  StepAsideState();

  // Whether a failure raises. JAXLIB_PJIT_STRICT=1 turns it on.
  const bool strict;
  // Whether a failure of each part has been logged.
  std::array<std::atomic<bool>, kNumParts> warned = {};
};

StepAsideState& GetStepAsideState();

// Clears the pending Python exception, and logs the first one of `part` in this
// process as a warning on the logger `jaxlib.pjit`. If the exception has to be
// raised, leaves it pending and returns false: in strict mode, and if it is not
// an `Exception`, like KeyboardInterrupt.
bool StepAside(Part part);

// Turns the current C++ exception into the pending Python exception, with the
// type that nanobind would raise: ValueError for std::invalid_argument,
// MemoryError for std::bad_alloc, RuntimeError for any other. Call it only in a
// catch block.
void SetPythonError();

// Whether a flag in the environment is on. It takes the words of JAX's flags:
// 1, true, t, on, yes, y, or 0, false, f, off, no, n, in any case. Returns
// `otherwise` if it is not set, empty, or another word, which gets a warning.
bool EnvironmentFlag(const char* name, bool otherwise);

}  // namespace jax

#endif  // JAXLIB_WHEEL_STEP_ASIDE_H_
