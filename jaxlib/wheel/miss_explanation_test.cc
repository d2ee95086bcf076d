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
#include <gtest/gtest.h>

#include <atomic>

#include "jaxlib/testing/python_testing.h"
#include "jaxlib/wheel/cache_miss.h"
#include "jaxlib/wheel/step_aside.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

nb::object Make(nb::object cache_miss) {
  return MakeCacheMiss({nb::str("f"), nb::none(), cache_miss, nb::make_tuple(),
                        nb::make_tuple(), nb::none(), nb::none()});
}

// An explanation that records its calls, in place of
// `jaxlib._fastpath_explain`.
class MissExplanationTest : public testing::Test {
 protected:
  MissExplanationTest() {
    for (std::atomic<bool>& warned : GetStepAsideState().warned) warned = false;
    scope_.Set("make", nb::cpp_function(&Make));
    scope_.Run(R"(
import logging, sys
logging.getLogger("jaxlib.pjit").propagate = False
logging.getLogger("jaxlib.pjit").handlers = [logging.NullHandler()]
noted = []
def begin(*args):
  noted.append(("begin", *args))
  return "begun"
def end(*args):
  noted.append(("end", *args))
explanation = types.SimpleNamespace(begin=begin, end=end)
sys.modules["jaxlib._fastpath_explain"] = explanation
# JAX has one flag a process, which is looked up once.
if "jax._src.config" not in sys.modules:
  sys.modules["jax._src.config"] = types.SimpleNamespace(
      explain_cache_misses=types.SimpleNamespace(value=False))
flag = sys.modules["jax._src.config"].explain_cache_misses
returned = (1, None)
def cache_miss(*args, **kwargs):
  noted.append("dispatch")
  return returned
f = make(cache_miss)
)");
  }
  ~MissExplanationTest() override {
    while (requests_ > 0) Explain(false);
  }

  void Explain(bool explaining) {
    SetExplaining(explaining);
    requests_ += explaining ? 1 : -1;
  }

  PythonScope scope_;

 private:
  int requests_ = 0;
};

TEST_F(MissExplanationTest, NothingIsCalledWhileItIsOff) {
  scope_.Run("f(1)");
  EXPECT_EQ(scope_.Repr("noted"), "['dispatch']");
}

TEST_F(MissExplanationTest, IsCalledBeforeAndAfterTheDispatch) {
  Explain(true);
  scope_.Run("result = f(1, k=2)");
  EXPECT_TRUE(
      scope_.Is("noted == [('begin', f, (1,), {'k': 2}), 'dispatch', "
                "('end', 'begun', returned)]"));
  EXPECT_TRUE(scope_.Is("result is returned"));
}

TEST_F(MissExplanationTest, EachRequestIsTakenBackByOne) {
  Explain(true);
  Explain(true);
  Explain(false);
  EXPECT_TRUE(IsExplaining());
  Explain(false);
  EXPECT_FALSE(IsExplaining());
}

TEST_F(MissExplanationTest, AnErrorOfTheDispatchIsUnchangedAndEndsIt) {
  Explain(true);
  scope_.Run(R"(
error = ValueError()
def fail():
  raise error
try:
  make(fail)()
except ValueError as e:
  caught = e
)");
  EXPECT_TRUE(scope_.Is("caught is error"));
  EXPECT_TRUE(scope_.Is("noted[-1] == ('end', 'begun', None)"));
}

TEST_F(MissExplanationTest, AnErrorBeforeTheDispatchLeavesItUnexplained) {
  Explain(true);
  scope_.Run("explanation.begin = lambda *args: 1 / 0\nresult = f()");
  EXPECT_TRUE(scope_.Is("result is returned"));
  EXPECT_EQ(scope_.Repr("noted"), "['dispatch']");
}

TEST_F(MissExplanationTest, AnErrorAfterTheDispatchLeavesItsResult) {
  Explain(true);
  scope_.Run("explanation.end = lambda *args: 1 / 0\nresult = f()");
  EXPECT_TRUE(scope_.Is("result is returned"));
}

TEST_F(MissExplanationTest, AnErrorAfterADispatchThatRaisedLeavesItsError) {
  Explain(true);
  scope_.Run(R"(
explanation.end = lambda *args: 1 / 0
def fail():
  raise KeyError("of the user")
try:
  make(fail)()
except KeyError as e:
  caught = e
)");
  EXPECT_EQ(scope_.Repr("caught"), "KeyError('of the user')");
}

TEST_F(MissExplanationTest, MissingModuleLeavesTheDispatchAlone) {
  Explain(true);
  scope_.Run("sys.modules['jaxlib._fastpath_explain'] = None\nresult = f()");
  EXPECT_TRUE(scope_.Is("result is returned"));
}

TEST_F(MissExplanationTest, KeyboardInterruptIsRaised) {
  Explain(true);
  scope_.Run(R"(
def interrupt(*args):
  raise KeyboardInterrupt
explanation.begin = interrupt
try:
  f()
  raised = False
except KeyboardInterrupt:
  raised = True
)");
  EXPECT_TRUE(scope_.Is("raised"));
}

TEST_F(MissExplanationTest, JaxsFlagTurnsItOn) {
  scope_.Run("flag.value = True; f(1); flag.value = False; f(1)");
  EXPECT_EQ(scope_.Repr("len(noted)"), "4");
}

TEST_F(MissExplanationTest, LeaksNoReference) {
  Explain(true);
  scope_.Run(R"(
def begin(*args):
  return None
def end(*args):
  pass
explanation.begin, explanation.end = begin, end
def quiet(*args, **kwargs):
  return returned
f = make(quiet)
argument = object()
watched = [argument, returned, f, quiet]
def counts():
  return [sys.getrefcount(o) for o in watched]
f(argument, k=argument)
before = counts()
for _ in range(100):
  f(argument, k=argument)
after = counts()
)");
  EXPECT_EQ(scope_.Repr("after"), scope_.Repr("before"));
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
