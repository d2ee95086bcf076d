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

#include "jaxlib/pjit.h"

#include <Python.h>

#include <array>
#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "jaxlib/wheel/cache_miss.h"
#include "jaxlib/wheel/step_aside.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// The parameters of the module's own `pjit`. Newer releases may append more.
enum Parameter : size_t {
  kFunctionName,
  kFun,
  kCacheMiss,
  kStaticArgnums,
  kStaticArgnames,
  kGlobalCacheKey,
  kPytreeRegistry,
  kShardArgFallback,
  kCache,
  kNumParameters,
};
constexpr std::array<const char*, kNumParameters> kParameterNames = {
    "function_name",
    "fun",
    "cache_miss",
    "static_argnums",
    "static_argnames",
    "global_cache_key",
    "pytree_registry",
    "shard_arg_fallback",
    "cache"};

// The index of `parameter` in the arguments of a vectorcall, or -1.
Py_ssize_t Find(Parameter parameter, Py_ssize_t num_positional,
                PyObject* kwnames) {
  if (static_cast<Py_ssize_t>(parameter) < num_positional) {
    return static_cast<Py_ssize_t>(parameter);
  }
  Py_ssize_t num_keyword = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < num_keyword; ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i),
                                         kParameterNames[parameter]) == 0) {
      return num_positional + i;
    }
  }
  return -1;
}

// Replaces the dispatch function in `args` with the wrapped one. Returns the
// owner of the new reference, or null if the call is not understood.
nb::object WrapCacheMiss(absl::Span<PyObject*> args, Py_ssize_t num_positional,
                         PyObject* kwnames) {
  std::array<PyObject*, kNumParameters> found = {};
  for (Parameter parameter :
       {kFunctionName, kFun, kCacheMiss, kStaticArgnums, kStaticArgnames,
        kGlobalCacheKey, kPytreeRegistry}) {
    Py_ssize_t index = Find(parameter, num_positional, kwnames);
    if (index < 0) return nb::object();
    found[parameter] = args[index];
  }
  if (!PyCallable_Check(found[kCacheMiss])) return nb::object();
  nb::object wrapped =
      MakeCacheMiss({found[kFunctionName], found[kFun], found[kCacheMiss],
                     found[kStaticArgnums], found[kStaticArgnames],
                     found[kGlobalCacheKey], found[kPytreeRegistry]});
  args[Find(kCacheMiss, num_positional, kwnames)] = wrapped.ptr();
  return wrapped;
}

// `stock` is the module's own `pjit`. The function is bound to it.
PyObject* Pjit(PyObject* stock, PyObject* const* args, Py_ssize_t nargs,
               PyObject* kwnames) {
  Py_ssize_t num_keyword = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  try {
    absl::InlinedVector<PyObject*, kNumParameters> passed(
        args, args + nargs + num_keyword);
    nb::object wrapped = WrapCacheMiss(absl::MakeSpan(passed), nargs, kwnames);
    return PyObject_Vectorcall(stock, passed.data(), nargs, kwnames);
  } catch (...) {
    SetPythonError();
  }
  if (!StepAside(Part::kWrapping)) return nullptr;
  return PyObject_Vectorcall(stock, args, nargs, kwnames);
}

PyMethodDef pjit_def = {
    "pjit", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(Pjit)),
    METH_FASTCALL | METH_KEYWORDS,
    "pjit($module, /, function_name, fun, cache_miss, static_argnums, "
    "static_argnames, global_cache_key, pytree_registry, shard_arg_fallback, "
    "cache=None)\n--\n\n"
    "Makes a PjitFunction whose fastpath attaches physical shardings."};

bool IsInstalled(nb::handle jax_module) {
  PyObject* pjit = nb::object(jax_module.attr("pjit")).ptr();
  return PyCFunction_Check(pjit) &&
         PyCFunction_GetFunction(pjit) == pjit_def.ml_meth;
}

// The state of a pickled `PjitFunction`, with a wrapped dispatch function.
nb::dict WithWrappedCacheMiss(nb::dict state) {
  nb::object cache_miss = state["cache_miss"];
  if (cache_miss.type().is(CacheMissType())) return state;
  auto get = [&](const char* name) { return nb::object(state[name]); };
  nb::object fun = state.contains("fun") ? get("fun") : nb::none();
  nb::dict wrapped = nb::cast<nb::dict>(state.attr("copy")());
  wrapped["cache_miss"] =
      MakeCacheMiss({get("function_name"), fun, cache_miss,
                     get("static_argnums"), get("static_argnames"),
                     get("global_cache_key"), get("pytree_registry")});
  return wrapped;
}

nb::object MakeSetState(nb::object stock) {
  return nb::cpp_function(
      [stock = std::move(stock)](nb::handle self, nb::dict state) {
        try {
          state = WithWrappedCacheMiss(state);
        } catch (...) {
          SetPythonError();
          if (!StepAside(Part::kWrapping)) nb::raise_python_error();
        }
        stock(self, state);
      },
      nb::name("__setstate__"), nb::is_method());
}

}  // namespace

void InstallPjit(nb::handle jax_module) {
  if (IsInstalled(jax_module)) return;
  nb::object stock = jax_module.attr("pjit");
  nb::object function_type = jax_module.attr("PjitFunction");
  nb::object set_state = MakeSetState(function_type.attr("__setstate__"));
  nb::object name = jax_module.attr("__name__");
  nb::object pjit =
      nb::steal(PyCFunction_NewEx(&pjit_def, stock.ptr(), name.ptr()));
  if (!pjit) nb::raise_python_error();
  function_type.attr("__setstate__") = set_state;
  jax_module.attr("pjit") = pjit;
}

}  // namespace jax
