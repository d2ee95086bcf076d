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

#include "jaxlib/canonical_spec.h"

#include <gtest/gtest.h>

#include <string>

#include "jaxlib/testing/python_testing.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// On a mesh with axes `a` and `b` of size two and `one` and `uno` of size one.
class CanonicalSpecTest : public testing::Test {
 protected:
  CanonicalSpecTest() {
    scope_.Set("canonical", nb::cpp_function(&CanonicalSpec));
    scope_.Run(R"(
mesh = Mesh()
explicit_mesh = Mesh(explicit_axes=("a", "one"))
)");
  }

  PythonScope scope_;
};

struct Spelling {
  const char* name;
  const char* spec;
  const char* canonical;
  const char* mesh = "mesh";
};

class SpellingTest : public CanonicalSpecTest,
                     public testing::WithParamInterface<Spelling> {};

TEST_P(SpellingTest, LeavesOutWhatSaysNothing) {
  scope_.Run(std::string("result = canonical(") + GetParam().spec + ", " +
             GetParam().mesh + ")");
  EXPECT_EQ(scope_.Repr("result.fields()"),
            scope_.Repr(std::string(GetParam().canonical) + ".fields()"));
}

INSTANTIATE_TEST_SUITE_P(
    All, SpellingTest,
    testing::Values(
        Spelling{"Empty", "P()", "P()"}, Spelling{"None", "P(None)", "P()"},
        Spelling{"ManyNones", "P(None, None, None)", "P()"},
        Spelling{"Axis", "P('a')", "P('a')"},
        Spelling{"TrailingNone", "P('a', None)", "P('a')"},
        Spelling{"LeadingNone", "P(None, 'a', None)", "P(None, 'a')"},
        Spelling{"TwoAxes", "P(('a', 'b'))", "P(('a', 'b'))"},
        Spelling{"OrderOfAxes", "P(('b', 'a'), None)", "P(('b', 'a'))"},
        Spelling{"TupleOfOne", "P(('a',))", "P('a')"},
        Spelling{"EmptyTuple", "P((), 'a', ())", "P(None, 'a')"},
        Spelling{"SizeOne", "P('one')", "P()"},
        Spelling{"SizeOneBeforeAnother", "P('one', 'a')", "P(None, 'a')"},
        Spelling{"SizeOneAmongOthers", "P(('a', 'one', 'b'))", "P(('a', 'b'))"},
        Spelling{"SizeOneBesideOne", "P(('one', 'a'))", "P('a')"},
        Spelling{"AllOfSizeOne", "P(('one', 'uno'), 'a')", "P(None, 'a')"},
        Spelling{"ExplicitSizeOne", "P('one', None)", "P('one')",
                 "explicit_mesh"},
        Spelling{"SizeOneOnAMeshWithExplicitAxes", "P('uno', None)", "P()",
                 "explicit_mesh"},
        Spelling{"NoAxisOfTheMesh", "P(..., None)", "P(...)"},
        Spelling{"Unreduced", "P(None, unreduced=frozenset('a'))",
                 "P(unreduced=frozenset('a'))"},
        Spelling{"Reduced", "P(None, reduced=frozenset('a'))",
                 "P(reduced=frozenset('a'))"},
        Spelling{"UnreducedOfSizeOne", "P(unreduced=frozenset(('one',)))",
                 "P(unreduced=frozenset(('one',)))"}),
    [](const testing::TestParamInfo<Spelling>& info) {
      return info.param.name;
    });

TEST_F(CanonicalSpecTest, IsTheSpecItselfIfNothingIsLeftOut) {
  scope_.Run("spec = P(None, 'a', ('a', 'b'))");
  EXPECT_TRUE(scope_.Is("canonical(spec, mesh) is spec"));
}

TEST_F(CanonicalSpecTest, DoesNotMutateTheSpec) {
  scope_.Run("spec = P(('one', 'a'), None); canonical(spec, mesh)");
  EXPECT_TRUE(scope_.Is("spec == P(('one', 'a'), None)"));
}

TEST_F(CanonicalSpecTest, PassesOnWhatPythonRaises) {
  scope_.Run(R"(
class Broken:
  @property
  def shape(self):
    raise KeyError("no shape")
try:
  canonical(P('a'), Broken())
except KeyError as e:
  error = repr(e)
)");
  EXPECT_EQ(scope_.Repr("error"), "\"KeyError('no shape')\"");
}

TEST_F(CanonicalSpecTest, LeaksNoReference) {
  scope_.Run(R"(
import gc, sys
specs = [P(), P('a', None), P(('one', 'a'), ('a', 'b')), P(('one', 'uno'))]
watched = [*specs, *(s._partitions for s in specs), specs[2]._partitions[1],
           mesh, mesh.shape, mesh.explicit_axes]
def counts():
  for spec in specs:
    canonical(spec, mesh)
  return [sys.getrefcount(o) for o in watched]
counts()
gc.collect()  # The empty tuple is everybody's.
gc.disable()
before = counts()
for _ in range(100):
  after = counts()
gc.enable()
)");
  EXPECT_EQ(scope_.Repr("after"), scope_.Repr("before"));
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
