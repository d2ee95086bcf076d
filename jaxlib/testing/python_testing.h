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

#ifndef JAXLIB_TESTING_PYTHON_TESTING_H_
#define JAXLIB_TESTING_PYTHON_TESTING_H_

#include <Python.h>

#include <string>
#include <string_view>

#include "nanobind/nanobind.h"

// An interpreter in a C++ test, with stand-ins for the parts of JAX that a test
// cannot load. For tests only.

namespace jax {

// Starts Python, makes the names of fake_jax.py importable as `jaxlib._jax` and
// `jaxlib._jax.pytree`, and runs all tests. Call it from `main`.
int RunAllTestsWithPython(int argc, char** argv);

// A namespace for Python code. It starts with all names of fake_jax.py.
class PythonScope {
 public:
  PythonScope();

  // Runs statements. An exception fails the test with its traceback.
  void Run(std::string_view code);

  // Evaluates an expression. An exception fails the test, and returns None.
  nanobind::object Get(const std::string& expression);

  // Whether an expression is true.
  bool Is(const std::string& expression);

  // The `repr` of an expression.
  std::string Repr(const std::string& expression);

  // Makes `function` a global of that name.
  void Set(const char* name, nanobind::object function);

 private:
  nanobind::dict globals_;
};

}  // namespace jax

#endif  // JAXLIB_TESTING_PYTHON_TESTING_H_
