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

#include "jaxlib/testing/python_testing.h"

#include <Python.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// nanobind starts with the first module that uses it.
NB_MODULE(python_testing, m) { m.doc() = "Starts nanobind in a test."; }

void StartPython() {
  PyImport_AppendInittab("python_testing", PyInit_python_testing);
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.use_environment = 1;
  config.site_import = 0;
  PyStatus status =
      PyConfig_SetBytesString(&config, &config.program_name, PJIT_PYTHON);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status)) Py_ExitStatusException(status);
}

void ImportFakeJax() {
  constexpr char kImport[] =
      "import sys; sys.path.insert(0, 'jaxlib/testing'); import "
      "python_testing, "
      "fake_jax";
  if (PyRun_SimpleString(kImport) != 0) std::exit(1);
}

}  // namespace

int RunAllTestsWithPython(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  StartPython();
  ImportFakeJax();
  int result = RUN_ALL_TESTS();
  if (Py_FinalizeEx() != 0) return 1;
  return result;
}

PythonScope::PythonScope() {
  globals_["__builtins__"] = nb::module_::import_("builtins");
  Run("from fake_jax import *");
}

void PythonScope::Run(std::string_view code) {
  nb::object result =
      nb::steal(PyRun_String(std::string(code).c_str(), Py_file_input,
                             globals_.ptr(), globals_.ptr()));
  if (result) return;
  PyErr_Print();
  ADD_FAILURE() << "raised by:\n" << code;
}

nb::object PythonScope::Get(const std::string& expression) {
  nb::object result = nb::steal(PyRun_String(expression.c_str(), Py_eval_input,
                                             globals_.ptr(), globals_.ptr()));
  if (result) return result;
  PyErr_Print();
  ADD_FAILURE() << "raised by: " << expression;
  return nb::none();
}

bool PythonScope::Is(const std::string& expression) {
  return PyObject_IsTrue(Get(expression).ptr()) == 1;
}

std::string PythonScope::Repr(const std::string& expression) {
  nb::object text = nb::steal(PyObject_Repr(Get(expression).ptr()));
  return PyUnicode_AsUTF8(text.ptr());
}

void PythonScope::Set(const char* name, nb::object function) {
  globals_[name] = function;
}

}  // namespace jax
