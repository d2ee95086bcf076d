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

// Linked as libjax_common.so. It has the only symbol of the real library that
// the `_jax` stub needs. The loader finds the real library beside the stub.

#include <Python.h>

PyObject* Wrapped_PyInit__jax(void);

PyObject* Wrapped_PyInit__jax(void) { return NULL; }
