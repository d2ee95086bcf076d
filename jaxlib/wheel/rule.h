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

#ifndef JAXLIB_WHEEL_RULE_H_
#define JAXLIB_WHEEL_RULE_H_

#include <Python.h>

#include <cstddef>

#include "absl/types/span.h"
#include "nanobind/nanobind.h"

namespace jax {

// What the rule made of a dispatch.
struct RuleResult {
  // What the dispatch function returned, or the same with another table, and
  // other outputs where some were respelled.
  nanobind::object dispatched;
  bool has_table = false;    // Whether an output is extended.
  size_t num_physical = 0;   // See `PhysicalOutShardings`,
  size_t num_respelled = 0;  // and `SpellLikeArguments`.
};

// All that this wheel does on a slow dispatch: attaches physical shardings to
// its extended outputs, spelled like its arguments. Mutates neither
// `dispatched` nor what it holds. The other arguments, and what it throws, are
// those of `MakePhysicalOutShardings` and `SpellLikeArguments`.
RuleResult ApplyRule(nanobind::object dispatched,
                     absl::Span<PyObject* const> args,
                     nanobind::handle registry,
                     nanobind::handle global_cache_key,
                     nanobind::handle decided);

}  // namespace jax

#endif  // JAXLIB_WHEEL_RULE_H_
