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

#include "jaxlib/wheel/step_aside.h"

#include <Python.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>

#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

constexpr std::array<const char*, kNumParts> kWhatFailed = {
    "give a jitted function physical output shardings",
    "attach physical shardings to the outputs of a dispatch",
    "explain a slow dispatch",
};

// The first line of `str(error)`, cut short, or nothing if that raises. The
// text of a user's exception can be anything.
nb::object Summary(nb::handle error) {
  constexpr Py_ssize_t kMaxLength = 200;
  nb::object text = nb::steal(PyObject_Str(error.ptr()));
  if (text) text = nb::steal(PyUnicode_Substring(text.ptr(), 0, kMaxLength));
  nb::object lines =
      text ? nb::steal(PyUnicode_Splitlines(text.ptr(), /*keepends=*/0))
           : nb::object();
  if (lines && PyList_GET_SIZE(lines.ptr()) > 0) {
    return nb::borrow(PyList_GET_ITEM(lines.ptr(), 0));
  }
  PyErr_Clear();
  return nb::steal(PyUnicode_FromString(""));
}

// The logger `jaxlib.pjit`, or null with the exception set.
nb::object Logger() {
  nb::object logging = nb::steal(PyImport_ImportModule("logging"));
  return logging ? nb::steal(PyObject_CallMethod(logging.ptr(), "getLogger",
                                                 "s", "jaxlib.pjit"))
                 : nb::object();
}

// Returns false, with the exception set, if the logger raised something that
// is not an `Exception`.
bool Warn(Part part, nb::handle error) {
  nb::object summary = Summary(error);
  nb::object logger = Logger();
  nb::object logged =
      logger && summary
          ? nb::steal(PyObject_CallMethod(
                logger.ptr(), "warning", "sssOs",
                "Could not %s (%s: %s); doing as stock jaxlib does. This is "
                "said once; set %s to raise the error instead.",
                kWhatFailed[static_cast<size_t>(part)],
                Py_TYPE(error.ptr())->tp_name, summary.ptr(),
                "JAXLIB_PJIT_STRICT=1"))
          : nb::object();
  if (logged) return true;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyErr_Clear();
  return true;
}

void WarnOfUnknownWord(const char* name, const char* word) {
  nb::object logger = Logger();
  nb::object logged =
      logger ? nb::steal(PyObject_CallMethod(
                   logger.ptr(), "warning", "sss",
                   "%s=%s: this word is unknown, and counts as not set; use "
                   "1 or 0.",
                   name, word))
             : nb::object();
  // Flags are read while jaxlib is imported, which must not fail here.
  if (!logged) PyErr_Clear();
}

bool IsOneOf(const char* word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [word](const char* each) {
    return strcasecmp(word, each) == 0;
  });
}

}  // namespace

StepAsideState::StepAsideState()
    : strict(EnvironmentFlag("JAXLIB_PJIT_STRICT", false)) {}

StepAsideState& GetStepAsideState() {
  static StepAsideState state;
  return state;
}

bool StepAside(Part part) {
  StepAsideState& state = GetStepAsideState();
  if (state.strict || !PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  bool aside = state.warned[static_cast<size_t>(part)].exchange(true) ||
               Warn(part, error);
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
  return aside;
}

void SetPythonError() {
  try {
    throw;
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

bool EnvironmentFlag(const char* name, bool otherwise) {
  const char* word = std::getenv(name);
  if (word == nullptr || *word == '\0') return otherwise;
  if (IsOneOf(word, {"1", "true", "t", "on", "yes", "y"})) return true;
  if (IsOneOf(word, {"0", "false", "f", "off", "no", "n"})) return false;
  WarnOfUnknownWord(name, word);
  return otherwise;
}

}  // namespace jax
