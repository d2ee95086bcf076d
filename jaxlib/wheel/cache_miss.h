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

#ifndef JAXLIB_WHEEL_CACHE_MISS_H_
#define JAXLIB_WHEEL_CACHE_MISS_H_

#include <Python.h>

#include <atomic>
#include <cstdint>

#include "nanobind/nanobind.h"

namespace jax {

// Counts of the slow dispatches of this process. They only grow. Each is exact,
// but they are not all read at the same instant.
struct DispatchCounters {
  // Calls of a Python dispatch function, with the rule on or off.
  std::atomic<uint64_t> slow_dispatches{0};
  // Dispatches with an extended output, for which a table was made.
  std::atomic<uint64_t> tables{0};
  // Entries of those tables that differ from stock's object.
  std::atomic<uint64_t> physical_entries{0};
  // Entries and results that got the spelling of an argument.
  std::atomic<uint64_t> respelled_results{0};
  // Dispatches that were left to stock because the rule failed.
  std::atomic<uint64_t> left_to_stock{0};
};

// Any thread may read and write all of it.
struct DispatchState {
  DispatchState();

  // Whether the rule is applied. JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=0 starts
  // with it off.
  std::atomic<bool> enabled;
  DispatchCounters counters;
};

DispatchState& GetDispatchState();

// The arguments of `pjit` that a dispatch needs.
struct PjitArguments {
  nanobind::handle function_name;
  nanobind::handle fun;
  nanobind::handle cache_miss;
  nanobind::handle static_argnums;   // A sequence of int.
  nanobind::handle static_argnames;  // A sequence of str.
  nanobind::handle global_cache_key;
  nanobind::handle registry;
};

// Makes a callable that calls `cache_miss`, the Python dispatch function of a
// jitted function, and applies the rule to its result; see `ApplyRule`. While
// slow dispatches are explained, each call is explained, too.
//
// The callable adds no Python frame. It holds strong references to all its
// arguments and takes part in garbage collection. It pickles as `cache_miss`
// itself, so that a pickle loads without this wheel. `__wrapped__` is
// `cache_miss`. Python code can change neither the callable nor its type.
//
// An exception of `cache_miss` is passed on unchanged. If the rule fails,
// `StepAside` decides whether the call raises, or returns the result of
// `cache_miss`.
//
// Throws a C++ or Python exception if an argument has the wrong type.
nanobind::object MakeCacheMiss(const PjitArguments& arguments);

// The type of the callables of `MakeCacheMiss`. The first call makes the type,
// and must come from the initialization of a module, which one thread runs.
nanobind::handle CacheMissType();

}  // namespace jax

#endif  // JAXLIB_WHEEL_CACHE_MISS_H_
