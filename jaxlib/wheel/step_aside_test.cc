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
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>

#include "jaxlib/testing/log_testing.h"
#include "jaxlib/testing/python_testing.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

class StepAsideTest : public testing::Test {
 protected:
  StepAsideTest() {
    for (std::atomic<bool>& warned : GetStepAsideState().warned) warned = false;
    scope_.Run(kRecordLog);
  }

  static bool Fail(Part part) {
    PyErr_SetString(PyExc_KeyError, "of a test");
    return StepAside(part);
  }

  PythonScope scope_;
};

TEST_F(StepAsideTest, AFailureIsLoggedOnce) {
  EXPECT_TRUE(Fail(Part::kRule));
  EXPECT_TRUE(Fail(Part::kRule));
  EXPECT_EQ(scope_.Repr("len(records.messages)"), "1");
}

TEST_F(StepAsideTest, AFailureOfOnePartSilencesNoOther) {
  for (Part part : {Part::kExplanation, Part::kRule, Part::kWrapping}) {
    EXPECT_TRUE(Fail(part));
  }
  EXPECT_EQ(
      scope_.Repr("[message.split(' (')[0] for message in records.messages]"),
      "['Could not explain a slow dispatch', 'Could not attach physical "
      "shardings to the outputs of a dispatch', 'Could not give a jitted "
      "function physical output shardings']");
}

// The pending exception after `thrown` was caught, as `Type: text`.
template <typename Thrown>
std::string Raised(Thrown thrown) {
  try {
    throw thrown;
  } catch (...) {
    SetPythonError();
  }
  nb::python_error error;
  std::string type = nb::cast<const char*>(error.type().attr("__name__"));
  return type + ": " + nb::str(error.value()).c_str();
}

TEST_F(StepAsideTest, ExceptionsHaveTheTypesThatNanobindGivesThem) {
  EXPECT_EQ(Raised(std::invalid_argument("form")), "ValueError: form");
  EXPECT_EQ(Raised(std::runtime_error("else")), "RuntimeError: else");
  EXPECT_EQ(Raised(std::bad_alloc()), "MemoryError: ");
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
