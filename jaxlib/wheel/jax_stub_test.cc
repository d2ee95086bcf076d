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

// The stub of jax_stub.c, linked with this test's `Wrapped_PyInit__jax`, which
// follows the protocol of older or of newer releases.

#include <Python.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "jaxlib/testing/log_testing.h"
#include "jaxlib/testing/python_testing.h"

extern "C" {
PyObject* PyInit__jax(void);
PyObject* Wrapped_PyInit__jax(void);
}

namespace jax {
namespace {

int SetStock(PyObject* module) {
  return PyModule_AddStringConstant(module, "pjit", "stock");
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(&SetStock)},
                            {0, nullptr}};

PyModuleDef multi_phase = {PyModuleDef_HEAD_INIT,
                           "jaxlib._jax",
                           nullptr,
                           0,
                           nullptr,
                           slots,
                           nullptr,
                           nullptr,
                           nullptr};
PyModuleDef single_phase = {PyModuleDef_HEAD_INIT,
                            "jaxlib._jax",
                            nullptr,
                            -1,
                            nullptr,
                            nullptr,
                            nullptr,
                            nullptr,
                            nullptr};

enum class Protocol { kMultiPhase, kSinglePhase, kError };
Protocol protocol;

PyObject* StockInit() {
  switch (protocol) {
    case Protocol::kMultiPhase:
      return PyModuleDef_Init(&multi_phase);
    case Protocol::kSinglePhase: {
      PyObject* module = PyModule_Create(&single_phase);
      SetStock(module);
      return module;
    }
    case Protocol::kError:
      PyErr_SetString(PyExc_ImportError, "of stock");
      return nullptr;
  }
  return nullptr;
}

// Does the import system's work on the result of an init function.
PyObject* Import() {
  PyObject* initialized = PyInit__jax();
  if (initialized == nullptr ||
      !PyObject_TypeCheck(initialized, &PyModuleDef_Type)) {
    return initialized;
  }
  PyModuleDef* definition = reinterpret_cast<PyModuleDef*>(initialized);
  PyObject* machinery = PyImport_ImportModule("importlib.machinery");
  PyObject* spec = PyObject_CallMethod(machinery, "ModuleSpec", "sO",
                                       "jaxlib._jax", Py_None);
  PyObject* module = PyModule_FromDefAndSpec(definition, spec);
  Py_XDECREF(machinery);
  Py_XDECREF(spec);
  if (module != nullptr && PyModule_ExecDef(module, definition) < 0) {
    Py_CLEAR(module);
  }
  return module;
}

class JaxStubTest : public testing::TestWithParam<Protocol> {
 protected:
  JaxStubTest() {
    protocol = GetParam();
    unsetenv("JAXLIB_PJIT_STRICT");
    scope_.Run(kRecordLog);
    scope_.Run(R"(
def provide(install):
  sys.modules["jaxlib._pjit"] = types.SimpleNamespace(install=install)
def ours(module):
  assert module.pjit == "stock"
  module.pjit = "ours"
def fails(module):
  raise RuntimeError("no pjit today")
def interrupts(module):
  raise KeyboardInterrupt
)");
  }

  // The `pjit` of the module after the import, or the type of the error.
  std::string ImportedPjit() {
    PyObject* module = Import();
    PyObject* pjit =
        module == nullptr ? nullptr : PyObject_GetAttrString(module, "pjit");
    std::string result;
    if (pjit == nullptr) {
      PyObject *type, *error, *traceback;
      PyErr_Fetch(&type, &error, &traceback);
      result = reinterpret_cast<PyTypeObject*>(type)->tp_name;
      Py_XDECREF(type);
      Py_XDECREF(error);
      Py_XDECREF(traceback);
    } else {
      result = PyUnicode_AsUTF8(pjit);
    }
    Py_XDECREF(pjit);
    Py_XDECREF(module);
    return result;
  }

  PythonScope scope_;
};

TEST_P(JaxStubTest, InstallsAfterStockHasMadeTheModule) {
  scope_.Run("provide(ours)");
  EXPECT_EQ(ImportedPjit(), "ours");
  EXPECT_EQ(scope_.Repr("records.messages"), "[]");
}

TEST_P(JaxStubTest, ImportsTwice) {
  scope_.Run("provide(ours)");
  EXPECT_EQ(ImportedPjit(), "ours");
  EXPECT_EQ(ImportedPjit(), "ours");
}

TEST_P(JaxStubTest, FailureLeavesStockWithOneWarning) {
  scope_.Run("provide(fails)");
  EXPECT_EQ(ImportedPjit(), "stock");
  EXPECT_EQ(scope_.Repr("records.messages"),
            "[\"Could not install jaxlib._pjit (RuntimeError('no pjit "
            "today')); using stock jaxlib's pjit. Set JAXLIB_PJIT_STRICT=1 to "
            "raise the error instead.\"]");
}

TEST_P(JaxStubTest, MissingModuleLeavesStockWithOneWarning) {
  scope_.Run("sys.modules['jaxlib._pjit'] = None");
  EXPECT_EQ(ImportedPjit(), "stock");
  EXPECT_EQ(scope_.Repr("len(records.messages)"), "1");
}

TEST_P(JaxStubTest, FailureRaisesInStrictMode) {
  setenv("JAXLIB_PJIT_STRICT", "1", /*overwrite=*/1);
  scope_.Run("provide(fails)");
  EXPECT_EQ(ImportedPjit(), "RuntimeError");
  EXPECT_EQ(scope_.Repr("records.messages"), "[]");
}

TEST_P(JaxStubTest, KeyboardInterruptIsRaised) {
  scope_.Run("provide(interrupts)");
  EXPECT_EQ(ImportedPjit(), "KeyboardInterrupt");
}

TEST_P(JaxStubTest, ErrorOfStockIsUnchanged) {
  scope_.Run("provide(ours)");
  protocol = Protocol::kError;
  EXPECT_EQ(ImportedPjit(), "ImportError");
}

INSTANTIATE_TEST_SUITE_P(All, JaxStubTest,
                         testing::Values(Protocol::kMultiPhase,
                                         Protocol::kSinglePhase),
                         [](const testing::TestParamInfo<Protocol>& info) {
                           return info.param == Protocol::kMultiPhase
                                      ? "MultiPhase"
                                      : "SinglePhase";
                         });

}  // namespace
}  // namespace jax

PyObject* Wrapped_PyInit__jax(void) { return jax::StockInit(); }

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
