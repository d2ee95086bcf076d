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

// `jaxlib._jax`, which replaces the stub of the stock wheel.
//
// Like the stock stub, it calls `Wrapped_PyInit__jax` in libjax_common.so. Then
// it lets `jaxlib._pjit` install its `pjit`. If that fails, the module stays as
// in stock, with one warning on the logger `jaxlib.pjit`. With
// JAXLIB_PJIT_STRICT=1 the import raises instead.

#include <Python.h>
#include <stdlib.h>
#include <string.h>

PyObject* Wrapped_PyInit__jax(void);

static int IsStrict(void) {
  const char* strict = getenv("JAXLIB_PJIT_STRICT");
  return strict != NULL && strcmp(strict, "1") == 0;
}

static void Warn(void) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  PyObject* logging = PyImport_ImportModule("logging");
  PyObject* logger = logging == NULL ? NULL
                                     : PyObject_CallMethod(logging, "getLogger",
                                                           "s", "jaxlib.pjit");
  if (logger != NULL) {
    Py_XDECREF(PyObject_CallMethod(
        logger, "warning", "sO",
        "Could not install jaxlib._pjit (%r); using stock jaxlib's pjit. Set "
        "JAXLIB_PJIT_STRICT=1 to raise the error instead.",
        error));
  }
  PyErr_Clear();
  Py_XDECREF(logger);
  Py_XDECREF(logging);
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
}

static int Install(PyObject* module) {
  PyObject* pjit = PyImport_ImportModule("jaxlib._pjit");
  PyObject* installed =
      pjit == NULL ? NULL : PyObject_CallMethod(pjit, "install", "O", module);
  Py_XDECREF(pjit);
  Py_XDECREF(installed);
  if (installed != NULL) return 0;
  if (IsStrict() || !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
  Warn();
  return 0;
}

// A copy of `stock` whose last step is `Install`. Like any module definition,
// it lives as long as the process.
static PyObject* DefinitionWithInstall(PyModuleDef* stock) {
  size_t num_slots = 0;
  while (stock->m_slots != NULL && stock->m_slots[num_slots].slot != 0) {
    ++num_slots;
  }
  PyModuleDef_Slot* slots = PyMem_Calloc(num_slots + 2, sizeof(*slots));
  PyModuleDef* definition = PyMem_Calloc(1, sizeof(*definition));
  if (slots == NULL || definition == NULL) {
    PyMem_Free(slots);
    PyMem_Free(definition);
    return PyErr_NoMemory();
  }
  if (num_slots > 0) memcpy(slots, stock->m_slots, num_slots * sizeof(*slots));
  slots[num_slots].slot = Py_mod_exec;
  slots[num_slots].value = (void*)Install;
  const PyModuleDef_Base head = PyModuleDef_HEAD_INIT;
  *definition = *stock;
  definition->m_base = head;
  definition->m_slots = slots;
  return PyModuleDef_Init(definition);
}

PyMODINIT_FUNC PyInit__jax(void) {
  PyObject* stock = Wrapped_PyInit__jax();
  if (stock == NULL) return NULL;
  if (PyObject_TypeCheck(stock, &PyModuleDef_Type)) {
    return DefinitionWithInstall((PyModuleDef*)stock);
  }
  if (Install(stock) < 0) {
    Py_DECREF(stock);
    return NULL;
  }
  return stock;
}
