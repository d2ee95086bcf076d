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

// The result of the rule for one dispatch.
struct RuleResult {
  // The result of the dispatch function, with another table if an output is
  // extended, and with other outputs if some were respelled.
  nanobind::object dispatched;
  bool has_table = false;    // Whether an output is extended.
  size_t num_physical = 0;   // See `PhysicalOutShardings`,
  size_t num_respelled = 0;  // and `SpellLikeArguments`.
};

// All that this wheel does on a slow dispatch: it attaches physical shardings
// to the extended outputs, spelled like the arguments. Mutates neither
// `dispatched` nor its items. For the other arguments and the exceptions, see
// `MakePhysicalOutShardings` and `SpellLikeArguments`.
RuleResult ApplyRule(nanobind::object dispatched,
                     absl::Span<PyObject* const> args,
                     nanobind::handle registry,
                     nanobind::handle global_cache_key,
                     nanobind::handle decided);

}  // namespace jax

#endif  // JAXLIB_WHEEL_RULE_H_
