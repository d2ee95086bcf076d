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

#include "jaxlib/dispatch_tree.h"

#include <Python.h>
#include <gtest/gtest.h>

#include <string>

#include "jaxlib/testing/python_testing.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// The extended leaves of a tree, for Python: the index of each, the index of
// its base arrays in the dispatch, and the base arrays.
nb::object Extended(nb::object registry, nb::object tree) {
  DispatchTree dispatch_tree(registry, tree);
  nb::list result;
  for (const ExtendedLeaf& leaf : dispatch_tree.extended()) {
    nb::list bases;
    for (size_t i = 0; i < leaf.num_bases; ++i) {
      bases.append(dispatch_tree.bases()[leaf.first_base + i]);
    }
    result.append(nb::make_tuple(leaf.leaf, leaf.table_index, bases));
  }
  return result;
}

class DispatchTreeTest : public testing::Test {
 protected:
  DispatchTreeTest() {
    scope_.Set("extended", nb::cpp_function(&Extended));
    scope_.Set("has_only_arrays", nb::cpp_function(&HasOnlyArrays));
    scope_.Run(R"(
x = array(NamedSharding(Mesh(), P()))
a, b, c = (array(x.sharding) for _ in range(3))
)");
  }

  std::string ExtendedOf(const std::string& tree) {
    scope_.Run("found = extended(dispatch_registry, " + tree + R"()
names = {id(a): 'a', id(b): 'b', id(c): 'c'}
shown = [(i, at, ''.join(names[id(base)] for base in bases))
         for i, at, bases in found]
)");
    return scope_.Repr("shown");
  }

  PythonScope scope_;
};

TEST_F(DispatchTreeTest, FindsEachExtendedLeafAndItsBaseArrays) {
  EXPECT_EQ(ExtendedOf("Key(a)"), "[(0, 0, 'a')]");
  EXPECT_EQ(ExtendedOf("[x, Key(a), {'k': (x, Key(b))}]"),
            "[(1, 1, 'a'), (3, 3, 'b')]");
}

TEST_F(DispatchTreeTest, CountsTheBaseArraysOfEachLeaf) {
  EXPECT_EQ(ExtendedOf("[x, Key(a, b), x, Key(c)]"),
            "[(1, 1, 'ab'), (3, 4, 'c')]");
  // As many as leaves, but not one each.
  EXPECT_EQ(ExtendedOf("[Key(), x, Key(a, b)]"), "[(0, 0, ''), (2, 1, 'ab')]");
}

TEST_F(DispatchTreeTest, LeavesThatHoldNoArraysAreNotExtended) {
  EXPECT_EQ(ExtendedOf("[1, Key(a), Key('no array')]"), "[(1, 1, 'a')]");
}

TEST_F(DispatchTreeTest, TellsPlainTreesFromOthers) {
  EXPECT_TRUE(scope_.Is("has_only_arrays([x, (x, None), {'x': [x]}])"));
  EXPECT_FALSE(scope_.Is("has_only_arrays([x, (x, None), {'x': [1]}])"));
  EXPECT_FALSE(scope_.Is("has_only_arrays(Key(x))"));
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
