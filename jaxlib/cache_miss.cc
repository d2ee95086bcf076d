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

#include "jaxlib/cache_miss.h"

#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "jaxlib/physical_out_shardings.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

struct CacheMissObject {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  PyObject* weakrefs;
  PyObject* cache_miss;
  PyObject* registry;
  PyObject* global_cache_key;
  PyObject* static_argnames;  // A frozenset of str.
  std::vector<Py_ssize_t> static_argnums;
};

CacheMissObject* AsCacheMiss(PyObject* self) {
  return reinterpret_cast<CacheMissObject*>(self);
}

// A negative number counts from the last positional argument.
bool IsStatic(const CacheMissObject& self, Py_ssize_t position,
              Py_ssize_t num_positional) {
  return std::any_of(self.static_argnums.begin(), self.static_argnums.end(),
                     [&](Py_ssize_t argnum) {
                       return argnum == position ||
                              argnum + num_positional == position;
                     });
}

bool IsStatic(const CacheMissObject& self, PyObject* name) {
  int found = PySet_Contains(self.static_argnames, name);
  if (found < 0) nb::raise_python_error();
  return found == 1;
}

// The arguments that are not static, as the caller gave them. Static ones may
// be any hashable object, and nothing of theirs may be called.
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

PyObject* Call(PyObject* self_object, PyObject* const* args, size_t nargsf,
               PyObject* kwnames) {
  const CacheMissObject& self = *AsCacheMiss(self_object);
  DispatchState& state = GetDispatchState();
  state.counters.slow_dispatches.fetch_add(1, std::memory_order_relaxed);
  nb::object dispatched =
      nb::steal(PyObject_Vectorcall(self.cache_miss, args, nargsf, kwnames));
  if (!dispatched || !state.enabled.load(std::memory_order_relaxed)) {
    return dispatched.release().ptr();
  }
  try {
    absl::InlinedVector<PyObject*, 8> dynamic =
        DynamicArguments(self, args, PyVectorcall_NARGS(nargsf), kwnames);
    PhysicalOutShardings table;
    nb::object result = WithPhysicalOutShardings(
        dispatched, dynamic, self.registry, self.global_cache_key, &table);
    if (table.shardings) {
      state.counters.tables.fetch_add(1, std::memory_order_relaxed);
      state.counters.physical_entries.fetch_add(table.num_physical,
                                                std::memory_order_relaxed);
      state.counters.respelled_results.fetch_add(table.num_respelled,
                                                 std::memory_order_relaxed);
    }
    return result.release().ptr();
  } catch (...) {
    SetPythonError();
  }
  if (!StepAside("attach physical shardings to the outputs of a dispatch")) {
    return nullptr;
  }
  state.counters.left_to_stock.fetch_add(1, std::memory_order_relaxed);
  return dispatched.release().ptr();
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  CacheMissObject* object = AsCacheMiss(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(object->cache_miss);
  Py_VISIT(object->registry);
  Py_VISIT(object->global_cache_key);
  Py_VISIT(object->static_argnames);
  return 0;
}

int Clear(PyObject* self) {
  CacheMissObject* object = AsCacheMiss(self);
  Py_CLEAR(object->cache_miss);
  Py_CLEAR(object->registry);
  Py_CLEAR(object->global_cache_key);
  Py_CLEAR(object->static_argnames);
  return 0;
}

void Dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (AsCacheMiss(self)->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  Clear(self);
  AsCacheMiss(self)->static_argnums.~vector();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* Repr(PyObject* self) {
  return PyUnicode_FromFormat("<jaxlib CacheMiss of %R>",
                              AsCacheMiss(self)->cache_miss);
}

// Reads as `operator.getitem((cache_miss,), 0)`: the wrapped function itself,
// by the means of the standard library alone.
PyObject* Reduce(PyObject* self, PyObject*) {
  nb::object operator_module = nb::steal(PyImport_ImportModule("operator"));
  if (!operator_module) return nullptr;
  nb::object getitem =
      nb::steal(PyObject_GetAttrString(operator_module.ptr(), "getitem"));
  if (!getitem) return nullptr;
  return Py_BuildValue("O((O)i)", getitem.ptr(), AsCacheMiss(self)->cache_miss,
                       0);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CacheMissObject, vectorcall),
     READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CacheMissObject, weakrefs),
     READONLY, nullptr},
    {"__wrapped__", T_OBJECT, offsetof(CacheMissObject, cache_miss), READONLY,
     "The Python dispatch function."},
    {nullptr, 0, 0, 0, nullptr}};

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

PyType_Spec spec = {"jaxlib._pjit.CacheMiss", sizeof(CacheMissObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                        Py_TPFLAGS_HAVE_VECTORCALL |
                        Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    slots};

// The first line of `str(error)`, or nothing if that raises: an exception of
// the user's may say anything, at any length.
std::string Summary(nb::handle error) {
  constexpr Py_ssize_t kMaxLength = 200;
  nb::object text = nb::steal(PyObject_Str(error.ptr()));
  if (text) text = nb::steal(PyUnicode_Substring(text.ptr(), 0, kMaxLength));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (utf8 == nullptr) {
    PyErr_Clear();
    return "";
  }
  std::string line(utf8);
  return line.substr(0, line.find('\n'));
}

void Warn(const char* what, nb::handle error) {
  nb::object logging = nb::steal(PyImport_ImportModule("logging"));
  if (!logging) return;
  nb::object logger = nb::steal(
      PyObject_CallMethod(logging.ptr(), "getLogger", "s", "jaxlib.pjit"));
  if (!logger) return;
  Py_XDECREF(PyObject_CallMethod(
      logger.ptr(), "warning", "sssss",
      "Could not %s (%s: %s); doing as stock jaxlib does. This is said once; "
      "set %s to raise the error instead.",
      what, Py_TYPE(error.ptr())->tp_name, Summary(error).c_str(),
      "JAXLIB_PJIT_STRICT=1"));
}

bool EnvironmentIs(const char* name, const char* value) {
  const char* found = std::getenv(name);
  return found != nullptr && std::strcmp(found, value) == 0;
}

}  // namespace

DispatchState::DispatchState()
    : enabled(!EnvironmentIs("JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS", "0")),
      strict(EnvironmentIs("JAXLIB_PJIT_STRICT", "1")) {}

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

nb::object MakeCacheMiss(nb::handle cache_miss, nb::handle static_argnums,
                         nb::handle static_argnames, nb::handle registry,
                         nb::handle global_cache_key) {
  std::vector<Py_ssize_t> argnums;
  for (nb::handle argnum : static_argnums) {
    argnums.push_back(nb::cast<Py_ssize_t>(argnum));
  }
  nb::object argnames = nb::steal(PyFrozenSet_New(static_argnames.ptr()));
  if (!argnames) nb::raise_python_error();

  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(CacheMissType().ptr());
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) nb::raise_python_error();
  CacheMissObject* object = AsCacheMiss(self);
  new (&object->static_argnums) std::vector<Py_ssize_t>(std::move(argnums));
  object->vectorcall = Call;
  object->cache_miss = cache_miss.inc_ref().ptr();
  object->registry = registry.inc_ref().ptr();
  object->global_cache_key = global_cache_key.inc_ref().ptr();
  object->static_argnames = argnames.release().ptr();
  return nb::steal(self);
}

bool StepAside(const char* what) {
  DispatchState& state = GetDispatchState();
  if (state.strict || !PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  if (!state.warned.exchange(true)) {
    Warn(what, error);
    PyErr_Clear();
  }
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
  return true;
}

void SetPythonError() {
  try {
    throw;
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

}  // namespace jax
