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

// Times `ApplyRule` by itself. It is a Python module instead of a program with
// an interpreter, so that the rule runs on JAX's own pytrees, arrays and
// shardings. With stand-ins in Python, their cost would hide that of the rule.

#include <Python.h>
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "jaxlib/wheel/rule.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// Adds a benchmark of one dispatch, the result of a Python dispatch function.
void Register(const char* name, nb::object dispatched, nb::tuple args,
              nb::object registry, nb::object global_cache_key,
              int64_t num_outputs) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) {
    std::vector<PyObject*> dynamic;
    for (nb::handle arg : args) dynamic.push_back(arg.ptr());
    for (auto _ : state) {
      nb::dict decided;  // As on the first dispatch of a function.
      RuleResult result =
          ApplyRule(dispatched, dynamic, registry, global_cache_key, decided);
      benchmark::DoNotOptimize(result.dispatched.ptr());
    }
    state.SetItemsProcessed(state.iterations() * num_outputs);
  });
}

// Runs the benchmarks and forgets them. They must not outlive the interpreter.
void Run(nb::list flags) {
  std::vector<std::string> kept = {"physical_out_shardings_benchmark"};
  for (nb::handle flag : flags) kept.push_back(nb::str(flag).c_str());
  std::vector<char*> argv;
  for (std::string& flag : kept) argv.push_back(flag.data());
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();
}

}  // namespace

NB_MODULE(physical_out_shardings_benchmark, m) {
  nb::set_leak_warnings(false);
  m.doc() = "Google Benchmark of the rule alone.";
  m.def("register", &Register, nb::arg("name"), nb::arg("dispatched"),
        nb::arg("args"), nb::arg("registry"), nb::arg("global_cache_key"),
        nb::arg("num_outputs"), "Adds a benchmark of one dispatch.");
  m.def("run", &Run, nb::arg("flags"),
        "Runs what was added, with the flags of Google Benchmark.");
}

}  // namespace jax
