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

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "jaxlib/canonical_spec.h"
#include "jaxlib/dispatch_tree.h"
#include "jaxlib/physical_out_shardings.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// nanobind's own containers do not check for a failed allocation.
nb::object Checked(PyObject* made) {
  if (made == nullptr) nb::raise_python_error();
  return nb::steal(made);
}

// What can be read of a base array of an extended leaf, even after deletion.
struct BaseArray {
  nb::object kind;  // Its shape and dtype.
  size_t ndim;
  nb::object sharding;

  explicit BaseArray(nb::handle array) : sharding(array.attr("sharding")) {
    nb::object aval = array.attr("aval");
    nb::object shape = aval.attr("shape");
    nb::object dtype = aval.attr("dtype");
    kind = Checked(PyTuple_Pack(2, shape.ptr(), dtype.ptr()));
    ndim = nb::len(shape);
  }
};

bool SameAttribute(nb::handle a, nb::handle b, const char* name) {
  return nb::getattr(a, name, nb::none())
      .equal(nb::getattr(b, name, nb::none()));
}

// Whether `a` and `b`, which compare unequal, give an array of rank `ndim` the
// same placement and differ only in their spelling.
bool AreSpelledDifferently(nb::handle a, nb::handle b, size_t ndim) {
  if (!a.type().is(b.type())) return false;
  if (nb::hasattr(a, "spec")) {
    // `is_equivalent_to` compares only devices. Explicit axes, logical ids and
    // the mesh object are part of an array's type or of the fastpath's key.
    nb::object mesh = a.attr("mesh");
    if (!mesh.is(b.attr("mesh")) || !SameAttribute(a, b, "_memory_kind") ||
        !SameAttribute(a, b, "_logical_device_ids") ||
        !CanonicalSpec(a.attr("spec"), mesh)
             .equal(CanonicalSpec(b.attr("spec"), mesh))) {
      return false;
    }
  } else if (!SameAttribute(a, b, "memory_kind")) {
    return false;
  }
  return nb::cast<bool>(a.attr("is_equivalent_to")(b, ndim));
}

// The shardings of some base arrays by the kind of the arrays, each once and in
// order. Programs have many keys, but few shardings.
class Spellings {
 public:
  Spellings() : by_kind_(Checked(PyDict_New())) {}

  void Add(const BaseArray& array) {
    nb::object of_kind =
        by_kind_.attr("setdefault")(array.kind, Checked(PyDict_New()));
    of_kind.attr("setdefault")(array.sharding);
  }

  bool Has(const BaseArray& array) const {
    nb::object of_kind = by_kind_.attr("get")(array.kind);
    return !of_kind.is_none() &&
           nb::cast<bool>(of_kind.attr("__contains__")(array.sharding));
  }

  // The only other sharding with the placement of `array`. Null if there is
  // none, or more than one.
  nb::object OnlyOther(const BaseArray& array) const {
    nb::object of_kind = by_kind_.attr("get")(array.kind);
    if (of_kind.is_none()) return nb::object();
    nb::object only;
    for (nb::handle sharding : of_kind) {
      if (!AreSpelledDifferently(sharding, array.sharding, array.ndim))
        continue;
      if (only) return nb::object();
      only = nb::borrow(sharding);
    }
    return only;
  }

 private:
  nb::object by_kind_;  // {kind: {sharding: None}}
};

// The shardings of the extended arguments of a call.
Spellings SpellingsOf(absl::Span<PyObject* const> args, nb::handle registry) {
  Spellings spellings;
  for (PyObject* arg : args) {
    if (HasOnlyArrays(arg)) continue;
    DispatchTree tree(registry, arg);
    for (const ExtendedLeaf& leaf : tree.extended()) {
      for (size_t i = 0; i < leaf.num_bases; ++i) {
        spellings.Add(BaseArray(tree.bases()[leaf.first_base + i]));
      }
    }
  }
  return spellings;
}

// The outputs whose sharding the caller asks for, by `jit(out_shardings=...)`.
class AskedFor {
 public:
  AskedFor(const DispatchTree& outputs, nb::handle global_cache_key)
      : asked_(outputs.num_leaves(), false) {
    nb::object leaves = global_cache_key.attr("out_shardings_leaves");
    if (leaves.is_none()) return;
    std::vector<bool> asked;
    for (nb::handle leaf : leaves) asked.push_back(IsSharding(leaf));
    if (std::find(asked.begin(), asked.end(), true) == asked.end()) return;

    nb::object treedef = global_cache_key.attr("out_shardings_treedef");
    if (!treedef.is_none()) asked = Broadcast(asked, treedef, outputs.tree());
    if (asked.size() == asked_.size()) {
      asked_ = std::move(asked);
    } else {
      // It is unclear which, so all count as asked for.
      asked_.assign(asked_.size(), true);
    }
  }

  bool operator[](size_t output) const { return asked_[output]; }

 private:
  // JAX has Python types of its own for "no sharding".
  static bool IsSharding(nb::handle leaf) {
    if (leaf.is_none()) return false;
    std::string_view type = Py_TYPE(leaf.ptr())->tp_name;
    return type != "UnspecifiedValue" && type != "AUTO";
  }

  // The shardings are a prefix of the outputs.
  static std::vector<bool> Broadcast(const std::vector<bool>& prefix,
                                     nb::handle treedef, nb::handle outputs) {
    std::vector<bool> asked;
    nb::object subtrees = treedef.attr("flatten_up_to")(outputs);
    for (size_t i = 0; i < prefix.size(); ++i) {
      nb::object subtree = subtrees[i];
      asked.insert(asked.end(), NumLeaves(subtree), prefix[i]);
    }
    return asked;
  }

  std::vector<bool> asked_;
};

// Decides the spelling of the outputs of one dispatch.
class Speller {
 public:
  // `kept` are the spellings of the outputs that must not change.
  Speller(absl::Span<PyObject* const> args, nb::handle registry,
          nb::handle decided, Spellings kept)
      : args_(args),
        registry_(registry),
        decided_(decided),
        kept_(std::move(kept)) {}

  nb::object SpellingFor(const BaseArray& output) {
    nb::object key =
        Checked(PyTuple_Pack(2, output.kind.ptr(), output.sharding.ptr()));
    nb::object known = decided_.attr("get")(key);
    if (!known.is_none()) return known;
    nb::object decision = Decide(output);
    if (PyDict_Size(decided_.ptr()) >= kMaxDecided) {
      PyDict_Clear(decided_.ptr());
    }
    // If two threads decide at the same time, the first decision holds.
    return decided_.attr("setdefault")(key, decision);
  }

 private:
  nb::object Decide(const BaseArray& output) {
    if (!has_arguments_) arguments_ = SpellingsOf(args_, registry_);
    has_arguments_ = true;
    if (arguments_.Has(output) || kept_.Has(output)) return output.sharding;
    nb::object other = arguments_.OnlyOther(output);
    return other ? other : output.sharding;
  }

  absl::Span<PyObject* const> args_;
  nb::handle registry_;
  nb::handle decided_;
  Spellings kept_;
  Spellings arguments_;  // Filled for the first decision.
  bool has_arguments_ = false;
};

// Makes arrays with another spelling of their shardings.
class Respeller {
 public:
  nb::object operator()(nb::handle array, nb::handle sharding) {
    nb::object aval = array.attr("aval");
    nb::object committed = array.attr("_committed");
    // Newer releases can do it without a Python object for each shard. The
    // new array is always committed.
    if (committed.is(Py_True) && CanRewrap()) {
      return array.attr(kRewrap)(aval, sharding);
    }
    return ArrayType()(aval, sharding, array.attr("_arrays"), committed,
                       nb::arg("_skip_checks") = true);
  }

 private:
  static constexpr char kRewrap[] = "_rewrap_with_aval_and_sharding";

  // Looked up once, since a failed lookup of an attribute is slow.
  bool CanRewrap() {
    if (!can_rewrap_) can_rewrap_ = nb::hasattr(ArrayType(), kRewrap);
    return *can_rewrap_;
  }

  std::optional<bool> can_rewrap_;
};

// The spellings of the outputs whose sharding the caller asks for.
Spellings SpellingsAskedFor(const AskedFor& asked_for, DispatchTree& outputs) {
  Spellings spellings;
  for (const ExtendedLeaf& output : outputs.extended()) {
    if (!asked_for[output.leaf]) continue;
    for (size_t i = 0; i < output.num_bases; ++i) {
      spellings.Add(BaseArray(outputs.bases()[output.first_base + i]));
    }
  }
  return spellings;
}

}  // namespace

size_t SpellLikeArguments(PhysicalOutShardings& table,
                          absl::Span<PyObject* const> args, nb::handle registry,
                          nb::handle global_cache_key, nb::handle decided) {
  DispatchTree& outputs = table.outputs;
  AskedFor asked_for(outputs, global_cache_key);
  Speller speller(args, registry, decided,
                  SpellingsAskedFor(asked_for, outputs));
  Respeller respelled;
  size_t num_respelled = 0;
  for (const ExtendedLeaf& output : outputs.extended()) {
    if (asked_for[output.leaf]) continue;
    for (size_t i = 0; i < output.num_bases; ++i) {
      nb::object base = outputs.bases()[output.first_base + i];
      BaseArray array(base);
      nb::object spelling = speller.SpellingFor(array);
      if (spelling.equal(array.sharding)) continue;
      outputs.bases()[output.first_base + i] = respelled(base, spelling);
      table.shardings[output.table_index + i] = spelling;
      ++num_respelled;
    }
  }
  return num_respelled;
}

}  // namespace jax
