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

#include "jaxlib/physical_out_shardings.h"

#include <Python.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "jaxlib/testing/python_testing.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// The rule as a Python function: returns what it returned, and the table.
nb::object Apply(nb::object dispatched, nb::tuple args, nb::object registry,
                 nb::object global_cache_key) {
  std::vector<PyObject*> arguments;
  for (nb::handle arg : args) arguments.push_back(arg.ptr());
  PhysicalOutShardings table;
  nb::object result = WithPhysicalOutShardings(dispatched, arguments, registry,
                                               global_cache_key, &table);
  return nb::make_tuple(result, table.shardings ? table.shardings : nb::none(),
                        table.num_physical, table.num_respelled);
}

// Runs `code`, which makes `dispatched` and `args`, and applies the rule.
class PhysicalOutShardingsTest : public testing::Test {
 protected:
  PhysicalOutShardingsTest() {
    scope_.Set("apply", nb::cpp_function(&Apply));
    scope_.Run(R"(
mesh, other_mesh = Mesh(), Mesh()
explicit_mesh = Mesh(explicit_axes=("a", "b", "one"))
def named(*partitions, **kwargs):
  return NamedSharding(mesh, P(*partitions), **kwargs)
args, global_cache_key, registry = (), NOTHING_ASKED, dispatch_registry
def run():
  global result, table, num_physical, num_respelled
  result, table, num_physical, num_respelled = apply(
      dispatched, args, registry, global_cache_key)
)");
  }

  void Apply_(const std::string& code) { scope_.Run(code + "\nrun()\n"); }

  // The exception that `code` and the rule raise, as `Type: text`.
  std::string Error(const std::string& code) {
    scope_.Run(code + R"(
try:
  run()
  error = "none"
except Exception as e:
  error = f"{type(e).__name__}: {e}"
)");
    return nb::cast<const char*>(scope_.Get("error"));
  }

  PythonScope scope_;
};

TEST_F(PhysicalOutShardingsTest, NoFastpathDataIsLeftAlone) {
  Apply_("dispatched = (key(named(None)), None, False)");
  EXPECT_TRUE(scope_.Is("result is dispatched"));
}

class ContainerTest : public PhysicalOutShardingsTest,
                      public testing::WithParamInterface<const char*> {};

TEST_P(ContainerTest, OfPlainOutputsIsLeftAlone) {
  Apply_("x = array(named()); outputs = " + std::string(GetParam()) + R"(
num_leaves = len(default_registry.flatten(outputs)[0])
dispatched = dispatch(outputs, [named()] * num_leaves)
)");
  EXPECT_TRUE(scope_.Is("result is dispatched"));
  EXPECT_TRUE(scope_.Is("table is None"));
}

TEST_P(ContainerTest, OfAKeyGetsTheDispatchedSharding) {
  Apply_("x = key(named(None)); outputs = " + std::string(GetParam()) + R"(
outputs = (array(named()), None, outputs)
num_leaves = len(default_registry.flatten(outputs)[0])
dispatched = dispatch(outputs, [named()] * num_leaves)
)");
  EXPECT_TRUE(scope_.Is("num_physical == num_leaves - 1"));
}

INSTANTIATE_TEST_SUITE_P(Containers, ContainerTest,
                         testing::Values("()", "None", "x", "(x,)", "[x]",
                                         "{'a': x}", "[{'a': (None, x)}, x]"));

TEST_F(PhysicalOutShardingsTest, ExtendedOutputGetsTheDispatchedSharding) {
  Apply_("dispatched = dispatch(key(named(None)), [named()])");
  EXPECT_TRUE(scope_.Is("table[0] is dispatched[0].bases[0].sharding"));
  EXPECT_TRUE(scope_.Is("result[1].out_shardings is table"));
  EXPECT_TRUE(scope_.Is("result[0] is dispatched[0]"));
  EXPECT_TRUE(scope_.Is("(num_physical, num_respelled) == (1, 0)"));
}

TEST_F(PhysicalOutShardingsTest, EntryThatIsPhysicalAlreadyChangesNothing) {
  Apply_("s = named(None); dispatched = dispatch(key(s), [s])");
  EXPECT_TRUE(scope_.Is("result is dispatched"));
  EXPECT_TRUE(scope_.Is("table[0] is s and num_physical == 0"));
}

TEST_F(PhysicalOutShardingsTest, PlainOutputsBesideExtendedKeepTheVeryObjects) {
  Apply_(R"(
stock = [named('a'), named(), named('b'), named(), named('c')]
outputs = {'a': array(named()), 'b': [key(named(None)), array(named())],
           'c': (key(named(None)), array(named()))}
dispatched = dispatch(outputs, stock)
)");
  EXPECT_TRUE(scope_.Is("all(table[i] is stock[i] for i in (0, 2, 4))"));
  EXPECT_TRUE(scope_.Is("table[1] is outputs['b'][0].bases[0].sharding"));
  EXPECT_TRUE(scope_.Is("table[3] is outputs['c'][0].bases[0].sharding"));
}

TEST_F(PhysicalOutShardingsTest, StockListAndFastpathDataAreNotMutated) {
  Apply_(R"(
stock = [named()]
copy = list(stock)
dispatched = dispatch(key(named(None)), stock)
)");
  EXPECT_TRUE(scope_.Is("stock == copy and stock[0] is copy[0]"));
  EXPECT_TRUE(scope_.Is("dispatched[1].out_shardings is stock"));
}

TEST_F(PhysicalOutShardingsTest, StockShardingsMayBeAnySequence) {
  Apply_(R"(
stock = (named('a'), named())
dispatched = dispatch([array(named()), key(named(None))], stock)
)");
  EXPECT_TRUE(scope_.Is("table[0] is stock[0]"));
  EXPECT_TRUE(scope_.Is("table[1] is dispatched[0][1].bases[0].sharding"));
}

TEST_F(PhysicalOutShardingsTest, EachBaseArrayOfALeafHasAnEntry) {
  Apply_(R"(
stock = [named('a'), named(), named('b')]
dispatched = dispatch(
    [array(named()), key(named(None), named(None, None)), array(named())],
    stock)
)");
  EXPECT_EQ(scope_.Repr("len(table)"), "4");
  EXPECT_TRUE(scope_.Is("table[0] is stock[0] and table[3] is stock[2]"));
  EXPECT_TRUE(
      scope_.Is("all(table[1 + i] is dispatched[0][1].bases[i].sharding for i "
                "in (0, 1))"));
}

TEST_F(PhysicalOutShardingsTest, TheRestOfTheTupleIsKept) {
  Apply_("dispatched = dispatch(key(named(None)), [named()])[:2]");
  EXPECT_EQ(scope_.Repr("len(result)"), "2");
  Apply_("dispatched = dispatch(key(named(None)), [named()])[:2] + (True, 7)");
  EXPECT_EQ(scope_.Repr("result[2:]"), "(True, 7)");
  EXPECT_TRUE(scope_.Is("type(result) is tuple"));
  EXPECT_TRUE(scope_.Is("result[1].xla_executable == 'executable'"));
}

TEST_F(PhysicalOutShardingsTest, RespelledResultSharesTheBuffers) {
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
  EXPECT_TRUE(scope_.Is("(num_physical, num_respelled) == (1, 1)"));
}

TEST_F(PhysicalOutShardingsTest, RewrapsCommittedArraysWhereTheReleaseCan) {
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

TEST_F(PhysicalOutShardingsTest, DonatedArgumentIsNotReadButForItsSharding) {
  Apply_(R"(
args = (key(named(None)),)
args[0].bases[0].deleted = True
dispatched = dispatch(key(named(None, None)), [named()])
)");
  EXPECT_TRUE(scope_.Is("table[0] is args[0].bases[0].sharding"));
}

TEST_F(PhysicalOutShardingsTest, EqualSpellingIsNotRebuilt) {
  Apply_(R"(
args = (key(named(None, None)),)
dispatched = dispatch(key(named(None, None)), [named()])
)");
  EXPECT_TRUE(scope_.Is("result[0] is dispatched[0]"));
  EXPECT_TRUE(scope_.Is("table[0] is dispatched[0].bases[0].sharding"));
}

TEST_F(PhysicalOutShardingsTest, ArgumentAtTheSamePositionComesFirst) {
  Apply_(R"(
args = (key(named(None)), array(named()), key(named(())))
dispatched = dispatch([key(named(None, None)), key(named(None, None))],
                      [named(), named()])
)");
  EXPECT_TRUE(scope_.Is("table[0] is args[0].bases[0].sharding"));
  EXPECT_TRUE(scope_.Is("table[1] is args[2].bases[0].sharding"));
}

TEST_F(PhysicalOutShardingsTest, ThenTheFirstArgumentThatFits) {
  Apply_(R"(
args = (key(named('a')), key(named(None)), key(named(())))
dispatched = dispatch([key(named(None, None))], [named()])
)");
  EXPECT_TRUE(scope_.Is("table[0] is args[1].bases[0].sharding"));
}

TEST_F(PhysicalOutShardingsTest, EqualArgumentAtTheSamePositionIsKeptTo) {
  Apply_(R"(
args = (key(named(None, None)), key(named(None)))
dispatched = dispatch([key(named(None, None))], [named()])
)");
  EXPECT_EQ(scope_.Repr("num_respelled"), "0");
}

TEST_F(PhysicalOutShardingsTest, PlainArgumentIsNoCandidate) {
  Apply_(R"(
args = (array(named(None)),)
dispatched = dispatch(key(named(None, None)), [named()])
)");
  EXPECT_EQ(scope_.Repr("num_respelled"), "0");
}

struct Spelling {
  const char* name;
  const char* argument;  // The sharding of the argument's base array.
  const char* output;    // The dispatched one of the output's.
  const char* options;   // How the argument differs from the output else.
  bool respelled;
};

class SpellingTest : public PhysicalOutShardingsTest,
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

class AskedForTest : public PhysicalOutShardingsTest,
                     public testing::WithParamInterface<Asked> {};

TEST_P(AskedForTest, KeepsTheSpellingAskedFor) {
  Apply_(std::string("global_cache_key = ") + GetParam().global_cache_key +
         R"(
args = (key(named(None)),)
full = named(None, None)
dispatched = dispatch((key(full), [key(full), key(full)]), [named()] * 3)
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

struct Misfit {
  const char* name;
  const char* code;
  const char* error;
};

class MisfitTest : public PhysicalOutShardingsTest,
                   public testing::WithParamInterface<Misfit> {};

TEST_P(MisfitTest, Raises) {
  EXPECT_EQ(Error(std::string("dispatched = dispatch(key(named(None)), "
                              "[named()])\nargs = (key(named()),)\n") +
                  GetParam().code),
            GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    All, MisfitTest,
    testing::Values(
        Misfit{"NotATuple", "dispatched = list(dispatched)",
               "ValueError: the dispatch function did not return (outputs, "
               "fastpath_data, ...)"},
        Misfit{"TupleTooShort", "dispatched = dispatched[:1]",
               "ValueError: the dispatch function did not return (outputs, "
               "fastpath_data, ...)"},
        Misfit{"TooFewShardings", "dispatched = dispatch(key(named(None)), [])",
               "ValueError: fastpath_data.out_shardings has another length "
               "than the outputs"},
        Misfit{"TooManyAvals",
               "dispatched[1].out_avals.append(Aval((), 'uint32'))",
               "ValueError: fastpath_data.out_avals has another length than "
               "the base arrays"},
        Misfit{"NoOutShardings",
               "dispatched = (dispatched[0], "
               "types.SimpleNamespace(out_avals=[]))",
               "AttributeError: 'types.SimpleNamespace' object has no "
               "attribute 'out_shardings'"},
        Misfit{"NoCacheKey", "global_cache_key = object()",
               "AttributeError: 'object' object has no attribute "
               "'out_shardings_leaves'"},
        Misfit{"RegistryThatRaises",
               "registry = PyTreeRegistry()\n"
               "registry.register_node(Key, lambda k: 1 / 0, None)",
               "ZeroDivisionError: division by zero"}),
    [](const testing::TestParamInfo<Misfit>& info) { return info.param.name; });

TEST_F(PhysicalOutShardingsTest, TenThousandOutputsAreEachRight) {
  Apply_(R"(
n = 10000
stock = [named() for _ in range(n)]
args = tuple(key(named(), shape=(i,)) for i in range(n))
outputs = [key(named(None), shape=(i,)) if i % 2 else array(named())
           for i in range(n)]
dispatched = dispatch(outputs, stock)
)");
  EXPECT_EQ(scope_.Repr("num_physical"), "5000");
  EXPECT_TRUE(scope_.Is(
      "all(table[i] is (args[i].bases[0].sharding if i % 2 else stock[i])"
      "    for i in range(n))"));
}

// The objects a dispatch is made of have, after it, as many references as
// before.
TEST_F(PhysicalOutShardingsTest, NoReferenceIsLeaked) {
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
apply(dispatched, args, registry, global_cache_key)
before = counts()
for _ in range(100):
  apply(dispatched, args, registry, global_cache_key)
after = counts()
)");
  EXPECT_EQ(scope_.Repr("after"), scope_.Repr("before"));
}

TEST_F(PhysicalOutShardingsTest, NoReferenceIsLeakedByAFailure) {
  scope_.Run(R"(
import sys
outputs = [key(named(None)), key(named(None))]
dispatched = dispatch(outputs, [named()])
watched = [dispatched, outputs, *outputs, dispatched[1]]
def counts():
  return [sys.getrefcount(o) for o in watched]
def fail():
  try:
    apply(dispatched, (), registry, global_cache_key)
  except ValueError:
    pass
fail()
before = counts()
for _ in range(100):
  fail()
after = counts()
)");
  EXPECT_EQ(scope_.Repr("after"), scope_.Repr("before"));
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
