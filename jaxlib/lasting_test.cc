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

#include "jaxlib/lasting.h"

#include <Python.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "jaxlib/testing/python_testing.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

class LastingTest : public testing::Test {
 protected:
  LastingTest() { scope_.Run("import weakref\nclass Made: pass"); }

  PythonScope scope_;
};

TEST_F(LastingTest, IsMadeOnce) {
  int made = 0;
  auto lasting = [&] {
    return Lasting([&] {
      ++made;
      return scope_.Get("Made()");
    });
  };
  nb::handle first = lasting();
  EXPECT_TRUE(lasting().is(first));
  EXPECT_EQ(made, 1);
}

// Like another thread that gets the GIL in the middle of `make`.
nb::handle MadeWhileItIsMade(PythonScope& scope, bool again) {
  return Lasting([&scope, again] {
    if (again) MadeWhileItIsMade(scope, false);
    return scope.Get("make()");
  });
}

TEST_F(LastingTest, TheFirstIsKeptAndTheOtherDropped) {
  scope_.Run(R"(
made = []
def make():
  new = Made()
  made.append(weakref.ref(new))
  return new
)");
  nb::handle kept = MadeWhileItIsMade(scope_, true);
  EXPECT_TRUE(kept.is(scope_.Get("made[0]()")));
  EXPECT_EQ(scope_.Repr("made[1]()"), "None");
}

TEST_F(LastingTest, NothingIsKeptOfNullNorOfAnError) {
  int calls = 0;
  auto lasting = [&] {
    return Lasting([&]() -> nb::object {
      if (++calls == 1) return nb::object();
      if (calls == 2) throw std::invalid_argument("not yet");
      return scope_.Get("Made()");
    });
  };
  EXPECT_FALSE(lasting().is_valid());
  EXPECT_THROW(lasting(), std::invalid_argument);
  EXPECT_TRUE(lasting().is_valid());
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
