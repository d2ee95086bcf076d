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

#ifndef JAXLIB_CACHE_MISS_H_
#define JAXLIB_CACHE_MISS_H_

#include <Python.h>

#include <atomic>
#include <cstdint>

#include "nanobind/nanobind.h"

namespace jax {

// What happened on the slow dispatches of this process. They only grow, and
// each is exact by itself, but not all are of the same instant.
struct DispatchCounters {
  // Calls of a Python dispatch function, with the rule on or off.
  std::atomic<uint64_t> slow_dispatches{0};
  // Dispatches with an extended output, for which a table was made.
  std::atomic<uint64_t> tables{0};
  // Entries of those tables that are another object than stock's.
  std::atomic<uint64_t> physical_entries{0};
  // Entries, and results, that took an argument's spelling.
  std::atomic<uint64_t> respelled_results{0};
  // Dispatches that went on as stock's, because the rule failed.
  std::atomic<uint64_t> left_to_stock{0};
};

// The settings that the environment gives a process, and its counters. All of
// it may be read and written by any thread.
struct DispatchState {
  DispatchState();

  // Whether the rule is applied. JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=0 starts
  // with it off.
  std::atomic<bool> enabled;
  // Whether a failure of the rule raises. JAXLIB_PJIT_STRICT=1 turns it on.
  const bool strict;
  std::atomic<bool> warned{false};
  DispatchCounters counters;
};

DispatchState& GetDispatchState();

// Makes a callable that calls `cache_miss`, the Python dispatch function of a
// jitted function, and applies `WithPhysicalOutShardings` to what it returns.
//
// The callable adds no Python frame. It holds all its arguments strongly, takes
// part in garbage collection, and pickles as `cache_miss` itself, so that a
// pickle loads where this file is not. `__wrapped__` is `cache_miss`.
//
// An exception that `cache_miss` raises is passed on untouched. If the rule
// fails, the call returns what `cache_miss` returned, and the first such
// failure of the process is logged as a warning on the logger `jaxlib.pjit`; in
// strict mode the call raises. An exception that is no `Exception`, such as
// KeyboardInterrupt, is always raised.
//
// `static_argnums` and `static_argnames` are sequences of int and of str.
// Throws nanobind::python_error if they are not.
nanobind::object MakeCacheMiss(nanobind::handle cache_miss,
                               nanobind::handle static_argnums,
                               nanobind::handle static_argnames,
                               nanobind::handle registry,
                               nanobind::handle global_cache_key);

// The type of what `MakeCacheMiss` makes. The first call makes the type; it
// belongs into a module's initialisation, which one thread runs.
nanobind::handle CacheMissType();

// Takes the pending Python exception, logs the first of the process and clears
// it; or leaves it pending and returns false if it has to be raised: in strict
// mode, and if it is no `Exception`. `what` is what could not be done.
bool StepAside(const char* what);

// Turns the C++ exception being handled into the pending Python exception. Call
// it in a catch block only.
void SetPythonError();

}  // namespace jax

#endif  // JAXLIB_CACHE_MISS_H_
