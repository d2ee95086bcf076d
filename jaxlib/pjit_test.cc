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

#include "jaxlib/pjit.h"

#include <Python.h>
#include <gtest/gtest.h>

#include "jaxlib/testing/python_testing.h"
#include "jaxlib/wheel/cache_miss.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

class PjitTest : public testing::Test {
 protected:
  PjitTest() {
    scope_.Set("install", nb::cpp_function(&InstallPjit));
    scope_.Set("CacheMiss", nb::borrow(CacheMissType()));
    // A module whose `pjit` records how it was called.
    scope_.Run(R"(
class PjitFunction:
  def __setstate__(self, state):
    self.state = state
calls = []
def stock(*args, **kwargs):
  calls.append((args, kwargs))
  return PjitFunction()
def make_module():
  module = types.ModuleType("jaxlib._jax")
  module.pjit = stock
  module.PjitFunction = type("PjitFunction", (PjitFunction,), {})
  return module
module = make_module()
def cache_miss():
  return None, None
names = ("function_name", "fun", "cache_miss", "static_argnums",
         "static_argnames", "global_cache_key", "pytree_registry",
         "shard_arg_fallback", "cache")
values = ("f", None, cache_miss, (), (), NOTHING_ASKED, dispatch_registry, len,
          None)
)");
  }

  PythonScope scope_;
};

TEST_F(PjitTest, WrapsCacheMissAndPassesTheRestAsItIs) {
  scope_.Run("install(module); result = module.pjit(*values)");
  EXPECT_TRUE(scope_.Is("type(result) is PjitFunction"));
  EXPECT_TRUE(scope_.Is("type(calls[0][0][2]) is CacheMiss"));
  EXPECT_TRUE(scope_.Is("calls[0][0][2].__wrapped__ is cache_miss"));
  EXPECT_TRUE(
      scope_.Is("calls[0][0][:2] + calls[0][0][3:] == "
                "values[:2] + values[3:]"));
  EXPECT_TRUE(scope_.Is("calls[0][1] == {}"));
}

TEST_F(PjitTest, TakesKeywordArguments) {
  scope_.Run("install(module); module.pjit(**dict(zip(names, values)))");
  EXPECT_TRUE(scope_.Is("list(calls[0][1]) == list(names)"));
  EXPECT_TRUE(scope_.Is("calls[0][1]['cache_miss'].__wrapped__ is cache_miss"));
}

TEST_F(PjitTest, TakesPositionalAndKeywordArgumentsTogether) {
  scope_.Run(R"(
install(module)
module.pjit(*values[:4], **dict(zip(names[4:8], values[4:8])))
)");
  EXPECT_TRUE(scope_.Is("calls[0][0][2].__wrapped__ is cache_miss"));
  EXPECT_TRUE(scope_.Is("list(calls[0][1]) == list(names[4:8])"));
}

TEST_F(PjitTest, PassesParametersThatItDoesNotKnow) {
  scope_.Run("install(module); module.pjit(*values, of_a_later_release=1)");
  EXPECT_TRUE(scope_.Is("type(calls[0][0][2]) is CacheMiss"));
  EXPECT_TRUE(scope_.Is("calls[0][1] == {'of_a_later_release': 1}"));
}

TEST_F(PjitTest, LeavesErrorsToStock) {
  scope_.Run(R"(
install(module)
module.pjit("f")
module.pjit(*values[:2], "not callable", *values[3:])
)");
  EXPECT_TRUE(scope_.Is("calls[0] == (('f',), {})"));
  EXPECT_TRUE(scope_.Is("calls[1][0][2] == 'not callable'"));
}

TEST_F(PjitTest, FallsBackToStockWhereItCanNotWrap) {
  scope_.Run(R"(
install(module)
module.pjit(*values[:3], ["no integer"], *values[4:])
)");
  EXPECT_TRUE(scope_.Is("calls[0][0][2] is cache_miss"));
}

TEST_F(PjitTest, SignatureIsTheStockOne) {
  scope_.Run("import inspect; install(module)");
  EXPECT_EQ(scope_.Repr("str(inspect.signature(module.pjit))"),
            "'(function_name, fun, cache_miss, static_argnums, "
            "static_argnames, global_cache_key, pytree_registry, "
            "shard_arg_fallback, cache=None)'");
  EXPECT_EQ(scope_.Repr("module.pjit.__name__, module.pjit.__module__"),
            "('pjit', 'jaxlib._jax')");
}

TEST_F(PjitTest, InstallsOnce) {
  scope_.Run(R"(
install(module)
first = module.pjit, module.PjitFunction.__setstate__
install(module)
)");
  EXPECT_TRUE(
      scope_.Is("(module.pjit, module.PjitFunction.__setstate__) == first"));
}

TEST_F(PjitTest, ModuleWithoutPjitIsLeftAsItWas) {
  scope_.Run(R"(
del module.PjitFunction
try:
  install(module)
  error = None
except AttributeError as e:
  error = str(e)
)");
  EXPECT_EQ(scope_.Repr("error"),
            "\"module 'jaxlib._jax' has no attribute 'PjitFunction'\"");
  EXPECT_TRUE(scope_.Is("module.pjit is stock"));
}

TEST_F(PjitTest, UnpickledFunctionIsWrapped) {
  scope_.Run(R"(
install(module)
state = dict(zip(names, values), version=1)
function = module.PjitFunction()
function.__setstate__(state)
)");
  EXPECT_TRUE(
      scope_.Is("function.state['cache_miss'].__wrapped__ is cache_miss"));
  EXPECT_TRUE(scope_.Is("state['cache_miss'] is cache_miss"));
  EXPECT_TRUE(scope_.Is("function.state['version'] == 1"));
}

TEST_F(PjitTest, CopiedFunctionIsNotWrappedTwice) {
  scope_.Run(R"(
install(module)
module.pjit(*values)
wrapped = calls[0][0][2]
function = module.PjitFunction()
function.__setstate__(dict(zip(names, values), cache_miss=wrapped))
)");
  EXPECT_TRUE(scope_.Is("function.state['cache_miss'] is wrapped"));
}

TEST_F(PjitTest, StateOfAnotherFormIsLeftToStock) {
  scope_.Run(R"(
install(module)
function = module.PjitFunction()
function.__setstate__({"version": 99})
)");
  EXPECT_TRUE(scope_.Is("function.state == {'version': 99}"));
}

TEST_F(PjitTest, LeaksNoReference) {
  scope_.Run(R"(
import sys
install(module)
def make():
  module.pjit(*values)
  calls.clear()
make()
before = [sys.getrefcount(v) for v in values]
for _ in range(100):
  make()
after = [sys.getrefcount(v) for v in values]
)");
  EXPECT_EQ(scope_.Repr("after"), scope_.Repr("before"));
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
