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

#include "jaxlib/wheel/miss_explanation.h"

#include <Python.h>

#include <atomic>
#include <cstddef>
#include <utility>

#include "jaxlib/lasting.h"
#include "jaxlib/wheel/step_aside.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

std::atomic<int> explaining_requests{0};

// The object of the flag `jax_explain_cache_misses`, or null before JAX makes
// it. JAX keeps it for the life of the process.
nb::handle JaxFlag() {
  return Lasting([]() -> nb::object {
    nb::object name = nb::steal(PyUnicode_FromString("jax._src.config"));
    nb::object config =
        name ? nb::steal(PyImport_GetModule(name.ptr())) : nb::object();
    nb::object flag = config ? nb::steal(PyObject_GetAttrString(
                                   config.ptr(), "explain_cache_misses"))
                             : nb::object();
    if (!flag) PyErr_Clear();
    return flag;
  });
}

nb::object Explain(const char* function) {
  return nb::module_::import_("jaxlib._fastpath_explain").attr(function);
}

}  // namespace

bool IsExplaining() {
  if (explaining_requests.load(std::memory_order_relaxed) > 0) return true;
  nb::handle flag = JaxFlag();
  if (!flag) return false;
  nb::object value = nb::steal(PyObject_GetAttrString(flag.ptr(), "value"));
  if (!value) PyErr_Clear();
  return value.ptr() == Py_True;
}

void SetExplaining(bool explaining) {
  explaining_requests.fetch_add(explaining ? 1 : -1);
}

bool MissExplanation::Begin(nb::handle cache_miss, PyObject* const* args,
                            size_t nargsf, PyObject* kwnames) {
  try {
    Py_ssize_t num_positional = PyVectorcall_NARGS(nargsf);
    nb::object positional = nb::steal(PyTuple_New(num_positional));
    nb::object keyword = nb::steal(PyDict_New());
    if (!positional || !keyword) nb::raise_python_error();
    for (Py_ssize_t i = 0; i < num_positional; ++i) {
      PyTuple_SET_ITEM(positional.ptr(), i, Py_NewRef(args[i]));
    }
    Py_ssize_t num_keyword = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < num_keyword; ++i) {
      keyword[nb::handle(PyTuple_GET_ITEM(kwnames, i))] =
          nb::handle(args[num_positional + i]);
    }
    begun_ = Explain("begin")(cache_miss, positional, keyword);
    return true;
  } catch (...) {
    SetPythonError();
  }
  return StepAside(Part::kExplanation);
}

bool MissExplanation::End(nb::handle dispatched) {
  if (!begun_) return true;
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  bool ended = true;
  try {
    nb::object begun = std::move(begun_);
    Explain("end")(begun, dispatched ? nb::borrow(dispatched) : nb::none());
  } catch (...) {
    SetPythonError();
    ended = StepAside(Part::kExplanation);
  }
  if (!ended) {
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return false;
  }
  PyErr_Restore(type, error, traceback);
  return true;
}

}  // namespace jax
