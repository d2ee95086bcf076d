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

#include "jaxlib/wheel/rule.h"

#include <Python.h>

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "jaxlib/physical_out_shardings.h"
#include "jaxlib/wheel/argument_spelling.h"
#include "nanobind/nanobind.h"

namespace jax {

RuleResult ApplyRule(nanobind::object dispatched,
                     absl::Span<PyObject* const> args,
                     nanobind::handle registry,
                     nanobind::handle global_cache_key,
                     nanobind::handle decided) {
  std::optional<PhysicalOutShardings> table =
      MakePhysicalOutShardings(dispatched, registry);
  if (!table) return {dispatched};
  size_t num_respelled =
      SpellLikeArguments(*table, args, registry, global_cache_key, decided);
  nanobind::object result = dispatched;
  if (table->num_physical > 0 || num_respelled > 0) {
    nanobind::object outputs =
        num_respelled > 0 ? table->outputs.Rebuilt() : dispatched[0];
    result = WithPhysicalOutShardings(dispatched, *table, outputs);
  }
  return {result, true, table->num_physical, num_respelled};
}

}  // namespace jax
