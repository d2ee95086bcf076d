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

// `jaxlib._pjit`: the part that the `_jax` stub installs, and its functions for
// users.

#include <atomic>

#include "jaxlib/pjit.h"
#include "jaxlib/wheel/cache_miss.h"
#include "jaxlib/wheel/miss_explanation.h"
#include "jaxlib/wheel/step_aside.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

nb::dict Counters() {
  const DispatchCounters& counters = GetDispatchState().counters;
  nb::dict result;
  result["slow_dispatches"] = counters.slow_dispatches.load();
  result["tables"] = counters.tables.load();
  result["physical_entries"] = counters.physical_entries.load();
  result["respelled_results"] = counters.respelled_results.load();
  result["left_to_stock"] = counters.left_to_stock.load();
  return result;
}

}  // namespace

NB_MODULE(_pjit, m) {
  // JAX keeps jitted functions in its modules until the process ends. That is
  // no leak, so nanobind must not report one.
  nb::set_leak_warnings(false);

  // Both read the environment and may warn, so only one thread may do it.
  GetDispatchState();
  GetStepAsideState();

  m.doc() = "The pjit fastpath with physical output shardings.";
  m.attr("CacheMiss") = CacheMissType();
  m.def("install", &InstallPjit, nb::arg("module"),
        "Puts this pjit in the place of the module's own.");
  m.def("counters", &Counters,
        "What the slow dispatches of this process came to: a dict of int.");
  m.def(
      "physical_out_shardings",
      [] { return GetDispatchState().enabled.load(); },
      "Whether the rule is applied.");
  m.def(
      "set_physical_out_shardings",
      [](bool enabled) { return GetDispatchState().enabled.exchange(enabled); },
      nb::arg("enabled"),
      "Turns the rule on or off for the slow dispatches to come, and returns "
      "the previous setting. Entries that the fastpath has already stay.");
  m.def(
      "strict", [] { return GetStepAsideState().strict; },
      "Whether a failure of the rule raises (JAXLIB_PJIT_STRICT=1).");
  m.def("set_explaining", &SetExplaining, nb::arg("explaining"),
        "Adds one who wants slow dispatches explained, or takes one away.");
}

}  // namespace jax
