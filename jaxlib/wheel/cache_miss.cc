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

#include "jaxlib/wheel/cache_miss.h"

#include <Python.h>
#include <structmember.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "jaxlib/wheel/miss_explanation.h"
#include "jaxlib/wheel/rule.h"
#include "jaxlib/wheel/step_aside.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

struct CacheMissObject {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  PyObject* weakrefs;
  PyObject* function_name;
  PyObject* fun;
  PyObject* cache_miss;
  PyObject* static_argnums;   // A tuple of int.
  PyObject* static_argnames;  // A frozenset of str.
  PyObject* global_cache_key;
  PyObject* registry;
  PyObject* decided;  // A dict, for `SpellLikeArguments`.
  std::atomic<uint64_t> slow_dispatches;
};

CacheMissObject* AsCacheMiss(PyObject* self) {
  return reinterpret_cast<CacheMissObject*>(self);
}

// A negative number counts from the last positional argument.
bool IsStatic(const CacheMissObject& self, Py_ssize_t position,
              Py_ssize_t num_positional) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self.static_argnums); ++i) {
    Py_ssize_t argnum =
        PyLong_AsSsize_t(PyTuple_GET_ITEM(self.static_argnums, i));
    if (argnum == position || argnum + num_positional == position) return true;
  }
  return false;
}

bool IsStatic(const CacheMissObject& self, PyObject* name) {
  int found = PySet_Contains(self.static_argnames, name);
  if (found < 0) nb::raise_python_error();
  return found == 1;
}

// The arguments that are not static, as the caller passed them. A static one
// may be any hashable object, and none of its code may run.
absl::InlinedVector<PyObject*, 8> DynamicArguments(const CacheMissObject& self,
                                                   PyObject* const* args,
                                                   Py_ssize_t num_positional,
                                                   PyObject* kwnames) {
  absl::InlinedVector<PyObject*, 8> dynamic;
  for (Py_ssize_t i = 0; i < num_positional; ++i) {
    if (!IsStatic(self, i, num_positional)) dynamic.push_back(args[i]);
  }
  Py_ssize_t num_keyword = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < num_keyword; ++i) {
    if (!IsStatic(self, PyTuple_GET_ITEM(kwnames, i))) {
      dynamic.push_back(args[num_positional + i]);
    }
  }
  return dynamic;
}

// The result of the rule, or `dispatched` if the rule fails. Null, with the
// Python exception set, if the failure has to be raised.
nb::object RuleOrStock(const CacheMissObject& self, nb::object dispatched,
                       PyObject* const* args, size_t nargsf,
                       PyObject* kwnames) {
  DispatchCounters& counters = GetDispatchState().counters;
  try {
    absl::InlinedVector<PyObject*, 8> dynamic =
        DynamicArguments(self, args, PyVectorcall_NARGS(nargsf), kwnames);
    RuleResult result = ApplyRule(dispatched, dynamic, self.registry,
                                  self.global_cache_key, self.decided);
    counters.tables.fetch_add(result.has_table, std::memory_order_relaxed);
    counters.physical_entries.fetch_add(result.num_physical,
                                        std::memory_order_relaxed);
    counters.respelled_results.fetch_add(result.num_respelled,
                                         std::memory_order_relaxed);
    return result.dispatched;
  } catch (...) {
    SetPythonError();
  }
  if (!StepAside(Part::kRule)) return nb::object();
  counters.left_to_stock.fetch_add(1, std::memory_order_relaxed);
  return dispatched;
}

// Whether the garbage collector has cleared the object. Only other objects that
// it is clearing can see this. If so, sets the Python exception.
bool IsCleared(PyObject* self) {
  if (AsCacheMiss(self)->cache_miss != nullptr) return false;
  PyErr_SetString(PyExc_RuntimeError,
                  "this jitted function is being garbage collected");
  return true;
}

nb::object Dispatch(CacheMissObject& self, PyObject* const* args, size_t nargsf,
                    PyObject* kwnames) {
  DispatchState& state = GetDispatchState();
  self.slow_dispatches.fetch_add(1, std::memory_order_relaxed);
  state.counters.slow_dispatches.fetch_add(1, std::memory_order_relaxed);
  nb::object dispatched =
      nb::steal(PyObject_Vectorcall(self.cache_miss, args, nargsf, kwnames));
  if (!dispatched || !state.enabled.load(std::memory_order_relaxed)) {
    return dispatched;
  }
  return RuleOrStock(self, std::move(dispatched), args, nargsf, kwnames);
}

PyObject* Call(PyObject* self, PyObject* const* args, size_t nargsf,
               PyObject* kwnames) {
  if (IsCleared(self)) return nullptr;
  if (!IsExplaining()) {
    return Dispatch(*AsCacheMiss(self), args, nargsf, kwnames).release().ptr();
  }
  MissExplanation explanation;
  if (!explanation.Begin(self, args, nargsf, kwnames)) return nullptr;
  nb::object dispatched = Dispatch(*AsCacheMiss(self), args, nargsf, kwnames);
  if (!explanation.End(dispatched)) return nullptr;
  return dispatched.release().ptr();
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  CacheMissObject* object = AsCacheMiss(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(object->function_name);
  Py_VISIT(object->fun);
  Py_VISIT(object->cache_miss);
  Py_VISIT(object->static_argnums);
  Py_VISIT(object->static_argnames);
  Py_VISIT(object->global_cache_key);
  Py_VISIT(object->registry);
  Py_VISIT(object->decided);
  return 0;
}

int Clear(PyObject* self) {
  CacheMissObject* object = AsCacheMiss(self);
  Py_CLEAR(object->function_name);
  Py_CLEAR(object->fun);
  Py_CLEAR(object->cache_miss);
  Py_CLEAR(object->static_argnums);
  Py_CLEAR(object->static_argnames);
  Py_CLEAR(object->global_cache_key);
  Py_CLEAR(object->registry);
  Py_CLEAR(object->decided);
  return 0;
}

void Dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (AsCacheMiss(self)->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  Clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* Repr(PyObject* self) {
  return PyUnicode_FromFormat("<jaxlib CacheMiss of %R>",
                              AsCacheMiss(self)->cache_miss);
}

// The pickle is `operator.getitem((cache_miss,), 0)`, the wrapped function
// itself, so that loading it needs only the standard library.
PyObject* Reduce(PyObject* self, PyObject*) {
  if (IsCleared(self)) return nullptr;
  nb::object operator_module = nb::steal(PyImport_ImportModule("operator"));
  if (!operator_module) return nullptr;
  nb::object getitem =
      nb::steal(PyObject_GetAttrString(operator_module.ptr(), "getitem"));
  if (!getitem) return nullptr;
  return Py_BuildValue("O((O)i)", getitem.ptr(), AsCacheMiss(self)->cache_miss,
                       0);
}

#define MEMBER(name, doc) \
  {#name, T_OBJECT, offsetof(CacheMissObject, name), READONLY, doc}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CacheMissObject, vectorcall),
     READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CacheMissObject, weakrefs),
     READONLY, nullptr},
    {"__wrapped__", T_OBJECT, offsetof(CacheMissObject, cache_miss), READONLY,
     "The Python dispatch function."},
    MEMBER(function_name, "The name of the jitted function."),
    MEMBER(fun, "The function that was jitted, or None ahead of time."),
    MEMBER(static_argnums, "The numbers of the static arguments."),
    MEMBER(static_argnames, "The names of the static arguments."),
    MEMBER(global_cache_key, "What else the cache entries depend on."),
    MEMBER(registry, "The dispatch pytree registry."),
    {"slow_dispatches", T_ULONGLONG, offsetof(CacheMissObject, slow_dispatches),
     READONLY, "How often it was called."},
    {nullptr, 0, 0, 0, nullptr}};

#undef MEMBER

PyMethodDef methods[] = {
    {"__reduce__", Reduce, METH_NOARGS, "Pickles as the wrapped function."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(Clear)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
                       {Py_tp_repr, reinterpret_cast<void*>(Repr)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {0, nullptr}};

PyType_Spec spec = {
    "jaxlib._pjit.CacheMiss", sizeof(CacheMissObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    slots};

}  // namespace

DispatchState::DispatchState()
    : enabled(EnvironmentFlag("JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS", true)) {}

DispatchState& GetDispatchState() {
  static DispatchState state;
  return state;
}

nb::handle CacheMissType() {
  // Never freed: instances may outlive the module at interpreter exit.
  static PyObject* type = [] {
    PyObject* made = PyType_FromSpec(&spec);
    if (made == nullptr) nb::raise_python_error();
    return made;
  }();
  return type;
}

nb::object MakeCacheMiss(const PjitArguments& arguments) {
  nb::tuple argnums(arguments.static_argnums);
  for (nb::handle argnum : argnums) nb::cast<Py_ssize_t>(argnum);
  nb::object argnames =
      nb::steal(PyFrozenSet_New(arguments.static_argnames.ptr()));
  nb::object decided = nb::steal(PyDict_New());
  if (!argnames || !decided) nb::raise_python_error();

  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(CacheMissType().ptr());
  nb::object self = nb::steal(type->tp_alloc(type, 0));
  if (!self) nb::raise_python_error();
  CacheMissObject* object = AsCacheMiss(self.ptr());
  object->vectorcall = Call;
  object->function_name = arguments.function_name.inc_ref().ptr();
  object->fun = arguments.fun.inc_ref().ptr();
  object->cache_miss = arguments.cache_miss.inc_ref().ptr();
  object->static_argnums = argnums.release().ptr();
  object->static_argnames = argnames.release().ptr();
  object->global_cache_key = arguments.global_cache_key.inc_ref().ptr();
  object->registry = arguments.registry.inc_ref().ptr();
  object->decided = decided.release().ptr();
  return self;
}

}  // namespace jax
