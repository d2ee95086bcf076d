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

#include <optional>
#include <string>

#include "jaxlib/testing/python_testing.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// The table of `dispatched`, and `dispatched` with it, for Python.
nb::object Apply(nb::object dispatched, nb::object registry) {
  std::optional<PhysicalOutShardings> table =
      MakePhysicalOutShardings(dispatched, registry);
  if (!table) return nb::make_tuple(dispatched, nb::none(), 0);
  return nb::make_tuple(
      WithPhysicalOutShardings(dispatched, *table, dispatched[0]),
      table->shardings, table->num_physical);
}

// Runs `code`, which makes `dispatched`, and makes its table.
class PhysicalOutShardingsTest : public testing::Test {
 protected:
  PhysicalOutShardingsTest() {
    scope_.Set("apply", nb::cpp_function(&Apply));
    scope_.Run(R"(
mesh = Mesh()
def named(*partitions, **kwargs):
  return NamedSharding(mesh, P(*partitions), **kwargs)
registry = dispatch_registry
def run():
  global result, table, num_physical
  result, table, num_physical = apply(dispatched, registry)
)");
  }

  void Apply_(const std::string& code) { scope_.Run(code + "\nrun()\n"); }

  // The exception of `code` or of the rule, as `Type: text`.
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
  EXPECT_TRUE(scope_.Is("num_physical == 1"));
}

TEST_F(PhysicalOutShardingsTest, EntryThatIsPhysicalAlreadyIsNotCounted) {
  Apply_("s = named(None); dispatched = dispatch(key(s), [s])");
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

TEST_F(PhysicalOutShardingsTest, LeavesOfNoBaseArrayAndOfTwoAreNotOneOfEach) {
  Apply_(R"(
stock = [named('a'), named('b'), named('c')]
outputs = [Key(), array(named()), key(named(None), named(None, None))]
dispatched = dispatch(outputs, stock)
)");
  EXPECT_TRUE(scope_.Is("len(table) == 3 and table[0] is stock[1]"));
  EXPECT_TRUE(scope_.Is("table[1] is outputs[2].bases[0].sharding"));
  EXPECT_TRUE(scope_.Is("table[2] is outputs[2].bases[1].sharding"));
}

TEST_F(PhysicalOutShardingsTest, TheRestOfTheTupleIsKept) {
  Apply_("dispatched = dispatch(key(named(None)), [named()])[:2]");
  EXPECT_EQ(scope_.Repr("len(result)"), "2");
  Apply_("dispatched = dispatch(key(named(None)), [named()])[:2] + (True, 7)");
  EXPECT_EQ(scope_.Repr("result[2:]"), "(True, 7)");
  EXPECT_TRUE(scope_.Is("type(result) is tuple"));
  EXPECT_TRUE(scope_.Is("result[1].xla_executable == 'executable'"));
}

struct Misfit {
  const char* name;
  const char* code;
  const char* error;
};

class MisfitTest : public PhysicalOutShardingsTest,
                   public testing::WithParamInterface<Misfit> {};

TEST_P(MisfitTest, Raises) {
  EXPECT_EQ(Error(std::string("dispatched = dispatch(key(named(None)), "
                              "[named()])\n") +
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
        Misfit{"RegistryThatRaises",
               "registry = PyTreeRegistry()\n"
               "registry.register_node(Key, lambda k: 1 / 0, None)",
               "ZeroDivisionError: division by zero"}),
    [](const testing::TestParamInfo<Misfit>& info) { return info.param.name; });

// After a dispatch, its objects have as many references as before.
TEST_F(PhysicalOutShardingsTest, NoReferenceIsLeaked) {
  scope_.Run(R"(
import sys
logical = named()
outputs = (key(named(None)), [array(logical)])
dispatched = dispatch(outputs, [logical, logical])
unfit = dispatched[0], dispatched[1]._replace(out_shardings=[logical])
watched = [logical, outputs, outputs[0], outputs[0].bases[0],
           outputs[0].bases[0].sharding, dispatched, dispatched[1], registry,
           default_registry, ArrayImpl, mesh]
def counts():
  return [sys.getrefcount(o) for o in watched]
def both():
  apply(dispatched, registry)
  try:
    apply(unfit, registry)
  except ValueError:
    pass
both()
before = counts()
for _ in range(100):
  both()
after = counts()
)");
  EXPECT_EQ(scope_.Repr("after"), scope_.Repr("before"));
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
