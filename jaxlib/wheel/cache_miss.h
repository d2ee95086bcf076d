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

// What happened on the slow dispatches of this process. They only grow, and
// each is exact, but they are not all read at the same instant.
struct DispatchCounters {
  // Calls of a Python dispatch function, with the rule on or off.
  std::atomic<uint64_t> slow_dispatches{0};
  // Dispatches with an extended output, for which a table was made.
  std::atomic<uint64_t> tables{0};
  // Entries of those tables that are not the object that stock has.
  std::atomic<uint64_t> physical_entries{0};
  // Entries, and results, that took an argument's spelling.
  std::atomic<uint64_t> respelled_results{0};
  // Dispatches left as stock does them, because the rule failed.
  std::atomic<uint64_t> left_to_stock{0};
};

// All of it may be read and written by any thread.
struct DispatchState {
  DispatchState();

  // Whether the rule is applied. JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=0 starts
  // with it off.
  std::atomic<bool> enabled;
  DispatchCounters counters;
};

DispatchState& GetDispatchState();

// Those of the arguments of `pjit` that a dispatch needs.
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
// jitted function, and applies the rule to what it returns; see `ApplyRule`.
// While slow dispatches are explained, it lets this one be explained too.
//
// The callable adds no Python frame. It holds all its arguments strongly, takes
// part in garbage collection, and pickles as `cache_miss` itself, so that a
// pickle loads where this file is not. `__wrapped__` is `cache_miss`. Neither
// it nor its type can be changed from Python.
//
// An exception that `cache_miss` raises is passed on untouched. Where the rule
// fails, `StepAside` says whether the call raises or returns what `cache_miss`
// returned.
//
// Throws a C++ or Python exception if an argument is not what it should be.
nanobind::object MakeCacheMiss(const PjitArguments& arguments);

// The type of what `MakeCacheMiss` makes. The first call makes the type; it
// belongs into a module's initialisation, which one thread runs.
nanobind::handle CacheMissType();

}  // namespace jax

#endif  // JAXLIB_WHEEL_CACHE_MISS_H_
