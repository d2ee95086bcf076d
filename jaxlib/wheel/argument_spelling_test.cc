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

#include "jaxlib/wheel/argument_spelling.h"

#include <Python.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "jaxlib/testing/python_testing.h"
#include "jaxlib/wheel/rule.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// The rule as a Python function. Returns the new `dispatched` and its table.
nb::object Apply(nb::object dispatched, nb::tuple args, nb::object registry,
                 nb::object global_cache_key, nb::dict decided) {
  std::vector<PyObject*> arguments;
  for (nb::handle arg : args) arguments.push_back(arg.ptr());
  RuleResult result =
      ApplyRule(dispatched, arguments, registry, global_cache_key, decided);
  nb::object table = result.dispatched[1].attr("out_shardings");
  return nb::make_tuple(result.dispatched, table, result.num_respelled);
}

// Runs `code`, which makes `dispatched` and `args`, and applies the rule as for
// the first dispatch of a function, or with `Again` as for a later one.
class ArgumentSpellingTest : public testing::Test {
 protected:
  ArgumentSpellingTest() {
    scope_.Set("apply", nb::cpp_function(&Apply));
    scope_.Run(R"(
mesh, other_mesh = Mesh(), Mesh()
explicit_mesh = Mesh(explicit_axes=("a", "b", "one"))
def named(*partitions, **kwargs):
  return NamedSharding(mesh, P(*partitions), **kwargs)
args, global_cache_key, registry = (), NOTHING_ASKED, dispatch_registry
decided = {}
def run():
  global result, table, num_respelled
  result, table, num_respelled = apply(
      dispatched, args, registry, global_cache_key, decided)
)");
  }

  void Again(const std::string& code) { scope_.Run(code + "\nrun()\n"); }
  void Apply_(const std::string& code) { Again("decided = {}\n" + code); }

  PythonScope scope_;
};

TEST_F(ArgumentSpellingTest, RespelledResultSharesTheBuffers) {
  Apply_(R"(
args = ([key(named(None))],)
dispatched = dispatch({'k': key(named(None, None)), 'x': array(named())},
                      [named(), named()])
old = dispatched[0]['k'].bases[0]
)");
  EXPECT_TRUE(scope_.Is("table[0] is args[0][0].bases[0].sharding"));
  EXPECT_TRUE(scope_.Is("result[0]['k'].bases[0].sharding is table[0]"));
  EXPECT_TRUE(scope_.Is("result[0]['k'].bases[0].buffers is old.buffers"));
  EXPECT_TRUE(scope_.Is("result[0]['k'].bases[0].aval is old.aval"));
  EXPECT_TRUE(scope_.Is("result[0]['x'] is dispatched[0]['x']"));
  EXPECT_TRUE(scope_.Is("dispatched[0]['k'].bases[0] is old"));
  EXPECT_TRUE(scope_.Is("num_respelled == 1"));
}

TEST_F(ArgumentSpellingTest, RewrapsCommittedArraysWhereTheReleaseCan) {
  Apply_(R"(
calls = []
def rewrap(self, aval, sharding):
  calls.append((self, aval, sharding))
  return ArrayImpl(aval, sharding, self.buffers, True)
ArrayImpl._rewrap_with_aval_and_sharding = rewrap
args = (key(named(None)), key(named(None)))
dispatched = dispatch([key(named(None, None)), key(named(None, None))],
                      [named(), named()])
committed, uncommitted = (k.bases[0] for k in dispatched[0])
uncommitted._committed = False
)");
  scope_.Run("del ArrayImpl._rewrap_with_aval_and_sharding");
  EXPECT_TRUE(scope_.Is("calls == [(committed, committed.aval, table[0])]"));
  EXPECT_TRUE(
      scope_.Is("[k.bases[0]._committed for k in result[0]] == "
                "[True, False]"));
  EXPECT_TRUE(scope_.Is("[k.bases[0].sharding for k in result[0]] == table"));
}

TEST_F(ArgumentSpellingTest, DonatedArgumentIsNotReadButForItsSharding) {
  Apply_(R"(
args = (key(named(None)),)
args[0].bases[0].deleted = True
dispatched = dispatch(key(named(None, None)), [named()])
)");
  EXPECT_TRUE(scope_.Is("table[0] is args[0].bases[0].sharding"));
}

TEST_F(ArgumentSpellingTest, EqualSpellingIsNotRebuilt) {
  Apply_(R"(
args = (key(named(None, None)),)
dispatched = dispatch(key(named(None, None)), [named()])
)");
  EXPECT_TRUE(scope_.Is("result[0] is dispatched[0]"));
  EXPECT_TRUE(scope_.Is("table[0] is dispatched[0].bases[0].sharding"));
}

TEST_F(ArgumentSpellingTest, AnOutputThatIsSpelledLikeAnArgumentIsLeftAlone) {
  Apply_(R"(
args = (key(named(None)), key(named(None, None)))
dispatched = dispatch([key(named(None, None))] * 2, [named()] * 2)
)");
  EXPECT_TRUE(scope_.Is("result[0] is dispatched[0]"));
  EXPECT_EQ(scope_.Repr("num_respelled"), "0");
}

TEST_F(ArgumentSpellingTest, TheOneSpellingOfArgumentsIsTakenForAllOutputs) {
  Apply_(R"(
args = (key(named('a')), key(named(None)), key(named(None)))
dispatched = dispatch([key(named(None, None)), key(named(None, None))],
                      [named(), named()])
)");
  EXPECT_TRUE(scope_.Is("table == [named(None)] * 2"));
}

TEST_F(ArgumentSpellingTest, OfSeveralSpellingsOfArgumentsNoneIsTaken) {
  Apply_(R"(
args = (key(named(None)), key(named('one')))
dispatched = dispatch(key(named(None, None)), [named()])
)");
  EXPECT_TRUE(scope_.Is("table == [named(None, None)]"));
}

TEST_F(ArgumentSpellingTest, EachBaseArrayOfALeafIsSpelledByItself) {
  Apply_(R"(
args = (key(named(None), named('a')),)
dispatched = dispatch(key(named(None, None), named('a', None)), [named()])
)");
  EXPECT_TRUE(scope_.Is("table == [named(None), named('a')]"));
}

TEST_F(ArgumentSpellingTest, WhatWasDecidedFirstHoldsForLaterDispatches) {
  Apply_(R"(
args = (key(named(None)),)
dispatched = dispatch(key(named(None, None)), [named()])
)");
  Again("args = (key(named('one')),)");
  EXPECT_TRUE(scope_.Is("table == [named(None)]"));
  Again("args = (key(named(None, None)),)");
  EXPECT_TRUE(scope_.Is("table == [named(None)]"));
}

TEST_F(ArgumentSpellingTest, WhatWasDecidedIsOfOneShapeAndDtype) {
  Apply_(R"(
args = (key(named(None)),)
dispatched = dispatch(key(named(None, None)), [named()])
)");
  Again(R"(
args = (key(named('one'), shape=(8, 2)), key(named('one'), dtype='int8'))
dispatched = dispatch([key(named(None, None), shape=(8, 2)),
                       key(named(None, None), dtype='int8')], [named()] * 2)
)");
  EXPECT_TRUE(scope_.Is("table == [named('one')] * 2"));
}

TEST_F(ArgumentSpellingTest, NoMoreIsKeptThanTheMost) {
  scope_.Run("most = " + std::to_string(kMaxDecided));
  Apply_(R"(
args = tuple(key(named(None), shape=(i,)) for i in range(most))
dispatched = dispatch([key(named(None, None), shape=(i,)) for i in range(most)],
                      [named()] * most)
)");
  EXPECT_TRUE(scope_.Is("len(decided) == most"));
  Again("dispatched = dispatch(key(named(None, None)), [named()])");
  EXPECT_EQ(scope_.Repr("len(decided)"), "1");
}

TEST_F(ArgumentSpellingTest, AnOutputSpelledLikeOneThatWasAskedForIsLeftAlone) {
  Apply_(R"(
global_cache_key = asked([UnspecifiedValue(), named()])
args = (key(named(None)),)
dispatched = dispatch([key(named(None, None))] * 2, [named()] * 2)
)");
  EXPECT_EQ(scope_.Repr("num_respelled"), "0");
}

TEST_F(ArgumentSpellingTest, ACacheKeyOfAnotherFormRaises) {
  scope_.Run(R"(
global_cache_key = object()
dispatched = dispatch(key(named(None, None)), [named()])
try:
  run()
except AttributeError as e:
  error = str(e)
)");
  EXPECT_EQ(scope_.Repr("error"),
            "\"'object' object has no attribute 'out_shardings_leaves'\"");
}

TEST_F(ArgumentSpellingTest, PlainArgumentIsNoCandidate) {
  Apply_(R"(
args = (array(named(None)),)
dispatched = dispatch(key(named(None, None)), [named()])
)");
  EXPECT_EQ(scope_.Repr("num_respelled"), "0");
}

struct Spelling {
  const char* name;
  const char* argument;  // The sharding of the argument's base array.
  const char* output;    // The dispatched sharding of the output's base.
  const char* options;   // Other differences from the output.
  bool respelled;
};

class SpellingTest : public ArgumentSpellingTest,
                     public testing::WithParamInterface<Spelling> {};

TEST_P(SpellingTest, IsTakenOnlyIfThePlacementIsTheSame) {
  Apply_(std::string("args = (key(") + GetParam().argument + ", " +
         GetParam().options + "),)\ndispatched = dispatch(key(" +
         GetParam().output + "), [named()])");
  EXPECT_EQ(scope_.Is("table[0] is args[0].bases[0].sharding"),
            GetParam().respelled);
}

INSTANTIATE_TEST_SUITE_P(
    All, SpellingTest,
    testing::Values(
        Spelling{"Empty", "named()", "named(None, None)", "", true},
        Spelling{"Short", "named('a')", "named('a', None)", "", true},
        Spelling{"Long", "named('a', None)", "named('a')", "", true},
        Spelling{"AxisOfSizeOne", "named('one', 'a')", "named(None, 'a')", "",
                 true},
        Spelling{"AxisOfSizeOneAmongOthers", "named(('a', 'one'))",
                 "named('a', 'one')", "", true},
        Spelling{"ExplicitAxisOfSizeOne",
                 "NamedSharding(explicit_mesh, P('one'))",
                 "NamedSharding(explicit_mesh, P(None))", "", false},
        Spelling{"OtherAxis", "named('b')", "named('a', None)", "", false},
        Spelling{"OtherDimension", "named(None, 'a')", "named('a')", "", false},
        Spelling{"OtherOrder", "named(('b', 'a'))", "named(('a', 'b'))", "",
                 false},
        Spelling{"OtherMesh", "NamedSharding(other_mesh, P())", "named(None)",
                 "", false},
        Spelling{"OtherMemory", "named(memory_kind='pinned_host')",
                 "named(None)", "", false},
        Spelling{"OtherLogicalIds", "named(ids=(1, 0))", "named(None)", "",
                 false},
        Spelling{"Unreduced",
                 "NamedSharding(mesh, P(unreduced=frozenset('a')))",
                 "named(None)", "", false},
        Spelling{"Reduced", "NamedSharding(mesh, P(reduced=frozenset('a')))",
                 "named(None)", "", false},
        Spelling{"OtherShape", "named()", "named(None)", "shape=(5, 2)", false},
        Spelling{"OtherDtype", "named()", "named(None)", "dtype='int32'",
                 false},
        Spelling{"OtherType", "OpaqueSharding(1, 'x')", "named(None)", "",
                 false},
        Spelling{"Opaque", "OpaqueSharding(1, 'x')", "OpaqueSharding(1, 'y')",
                 "", true},
        Spelling{"OpaqueElsewhere", "OpaqueSharding(2, 'x')",
                 "OpaqueSharding(1, 'y')", "", false},
        Spelling{"OpaqueOtherMemory", "OpaqueSharding(1, 'x', 'pinned_host')",
                 "OpaqueSharding(1, 'x')", "", false}),
    [](const testing::TestParamInfo<Spelling>& info) {
      return info.param.name;
    });

struct Asked {
  const char* name;
  const char* global_cache_key;
  const char* respelled;  // Which of the outputs `(k0, [k1, k2])`.
};

class AskedForTest : public ArgumentSpellingTest,
                     public testing::WithParamInterface<Asked> {};

TEST_P(AskedForTest, KeepsTheSpellingAskedFor) {
  Apply_(std::string("global_cache_key = ") + GetParam().global_cache_key +
         R"(
args = (key(named(None)),)
outputs = (key(named(None, None)),
           [key(named('one')), key(named('one', None))])
dispatched = dispatch(outputs, [named()] * 3)
)");
  EXPECT_EQ(scope_.Repr("[s == named(None) for s in table]"),
            GetParam().respelled);
}

INSTANTIATE_TEST_SUITE_P(
    All, AskedForTest,
    testing::Values(
        Asked{"Nothing", "NOTHING_ASKED", "[True, True, True]"},
        Asked{"Unspecified", "asked(UnspecifiedValue())", "[True, True, True]"},
        Asked{"NoneAtAll", "CacheKey(None, (None,))", "[True, True, True]"},
        Asked{"OneForAll", "asked(named())", "[False, False, False]"},
        Asked{"Prefix", "asked((UnspecifiedValue(), named()))",
              "[True, False, False]"},
        Asked{"EachOne", "asked((named(), [UnspecifiedValue(), P()]))",
              "[False, True, False]"},
        Asked{"Flat",
              "CacheKey(None, (UnspecifiedValue(), named(), "
              "UnspecifiedValue()))",
              "[True, False, True]"},
        Asked{"CanNotBeTold", "CacheKey(None, (named(), UnspecifiedValue()))",
              "[False, False, False]"}),
    [](const testing::TestParamInfo<Asked>& info) { return info.param.name; });

TEST_F(ArgumentSpellingTest, TenThousandOutputsAreEachRight) {
  Apply_(R"(
n = 10000
stock = [named() for _ in range(n)]
args = tuple(key(named(), shape=(i,)) for i in range(n))
outputs = [key(named(None), shape=(i,)) if i % 2 else array(named())
           for i in range(n)]
dispatched = dispatch(outputs, stock)
)");
  EXPECT_EQ(scope_.Repr("num_respelled"), "5000");
  EXPECT_TRUE(scope_.Is(
      "all(table[i] is (args[i].bases[0].sharding if i % 2 else stock[i])"
      "    for i in range(n))"));
}

// After a dispatch, its objects have as many references as before.
TEST_F(ArgumentSpellingTest, NoReferenceIsLeaked) {
  scope_.Run(R"(
import sys
sharding, full, logical = named(None), named(None, None), named()
args = (key(sharding), array(logical))
outputs = (key(full), [array(logical)])
dispatched = dispatch(outputs, [logical, logical])
global_cache_key = asked((UnspecifiedValue(), named()))
watched = [sharding, full, logical, *args, args[0].bases[0], outputs,
           outputs[0], outputs[0].bases[0], outputs[0].bases[0].buffers,
           dispatched, dispatched[1], global_cache_key, registry,
           default_registry, ArrayImpl, mesh]
def counts():
  return [sys.getrefcount(o) for o in watched]
apply(dispatched, args, registry, global_cache_key, {})
before = counts()
for _ in range(100):
  apply(dispatched, args, registry, global_cache_key, {})
after = counts()
)");
  EXPECT_EQ(scope_.Repr("after"), scope_.Repr("before"));
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
