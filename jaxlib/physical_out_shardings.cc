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

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "jaxlib/canonical_spec.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

// A new container. nanobind's own constructors do not notice that there is no
// memory for one.
template <typename Container>
Container Made(PyObject* made) {
  if (made == nullptr) nb::raise_python_error();
  return nb::steal<Container>(made);
}

// A pytree flattened by a registry. `treedef` rebuilds it from its leaves.
struct Flattened {
  nb::list leaves;
  nb::object treedef;
};

Flattened Flatten(nb::handle registry, nb::handle tree) {
  nb::object flattened = registry.attr("flatten")(tree);
  return {nb::cast<nb::list>(flattened[0]), nb::object(flattened[1])};
}

// What `make` makes, made once and never dropped, as what lives as long as the
// process: to look it up again would cost a small dispatch more than the rest
// of the rule. `Make` tells one from another.
template <typename Make>
nb::handle Lasting(Make make) {
  static std::atomic<PyObject*> made{nullptr};
  PyObject* known = made.load(std::memory_order_acquire);
  if (known == nullptr) {
    known = nb::object(make()).release().ptr();
    made.store(known, std::memory_order_release);
  }
  return known;
}

// The type of JAX's arrays.
nb::handle ArrayType() {
  return Lasting(
      [] { return nb::module_::import_("jaxlib._jax").attr("ArrayImpl"); });
}

nb::handle DefaultRegistry() {
  return Lasting([] {
    return nb::module_::import_("jaxlib._jax.pytree")
        .attr("default_registry")();
  });
}

// Whether a pytree of Python's own containers has nothing but arrays, which is
// the common case, and must cost next to nothing. False for any other node.
bool HasOnlyArrays(PyObject* tree, PyTypeObject* array_type) {
  if (Py_IS_TYPE(tree, array_type)) return true;
  if (PyTuple_CheckExact(tree) || PyList_CheckExact(tree)) {
    PyObject** begin = PySequence_Fast_ITEMS(tree);
    return std::all_of(
        begin, begin + PySequence_Fast_GET_SIZE(tree),
        [&](PyObject* child) { return HasOnlyArrays(child, array_type); });
  }
  if (PyDict_CheckExact(tree)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(tree, &position, &key, &value)) {
      if (!HasOnlyArrays(value, array_type)) return false;
    }
    return true;
  }
  return tree == Py_None;
}

// What tells an extended leaf from a plain array.
struct Registries {
  nb::handle default_registry;
  nb::handle dispatch_registry;
  nb::handle array_type;

  explicit Registries(nb::handle dispatch_registry)
      : default_registry(DefaultRegistry()),
        dispatch_registry(dispatch_registry),
        array_type(ArrayType()) {}

  bool IsArray(nb::handle value) const { return value.type().is(array_type); }

  // Asked once: that an attribute is missing is slow to find out.
  bool CanRewrap() const {
    if (!can_rewrap) {
      can_rewrap = nb::hasattr(array_type, "_rewrap_with_aval_and_sharding");
    }
    return *can_rewrap;
  }
  mutable std::optional<bool> can_rewrap;
};

// A leaf of the default registry that is a node of the dispatch registry, and
// the base arrays under it.
struct ExtendedLeaf {
  size_t leaf;         // Where it is among the leaves of the default registry.
  size_t table_index;  // Where its bases begin among those of dispatch,
  size_t first_base;   // and among those of `DispatchTree::bases`.
  size_t num_bases;
};

// A pytree as both registries see it.
class DispatchTree {
 public:
  DispatchTree(const Registries& registries, nb::handle tree)
      : flattened_(Flatten(registries.default_registry, tree)) {
    std::vector<size_t> others;
    for (size_t i = 0; i < num_leaves(); ++i) {
      if (!registries.IsArray(Leaf(i))) others.push_back(i);
    }
    if (!others.empty()) FindExtended(registries, others);
  }

  size_t num_leaves() const { return nb::len(flattened_.leaves); }
  const std::vector<ExtendedLeaf>& extended() const { return extended_; }

  // The base arrays of all leaves that are not arrays. Valid if there is an
  // extended leaf.
  nb::list& bases() { return bases_.leaves; }

  // The tree with what `bases` has now.
  nb::object Rebuilt() {
    nb::object rebuilt = bases_.treedef.attr("unflatten")(bases_.leaves);
    for (size_t i = 0; i < others_.size(); ++i) {
      flattened_.leaves[others_[i]] = rebuilt[i];
    }
    return flattened_.treedef.attr("unflatten")(flattened_.leaves);
  }

 private:
  nb::handle Leaf(size_t i) const {
    return PyList_GET_ITEM(flattened_.leaves.ptr(), i);
  }

  void FindExtended(const Registries& registries, std::vector<size_t>& others) {
    nb::list leaves = Made<nb::list>(PyList_New(0));
    for (size_t leaf : others) leaves.append(Leaf(leaf));
    bases_ = Flatten(registries.dispatch_registry, leaves);
    // Nearly always each leaf has one base array. None has fewer, or it would
    // hold nothing.
    bool one_each = nb::len(bases_.leaves) == others.size();
    size_t base = 0;
    for (size_t i = 0; i < others.size(); ++i) {
      nb::handle leaf = Leaf(others[i]);
      size_t num_bases =
          one_each
              ? 1
              : nb::len(Flatten(registries.dispatch_registry, leaf).leaves);
      if (AreArrays(registries, base, num_bases)) {
        extended_.push_back({others[i], others[i] - i + base, base, num_bases});
      }
      base += num_bases;
    }
    others_ = std::move(others);
  }

  bool AreArrays(const Registries& registries, size_t base,
                 size_t num_bases) const {
    for (size_t i = base; i < base + num_bases; ++i) {
      if (!registries.IsArray(PyList_GET_ITEM(bases_.leaves.ptr(), i))) {
        return false;
      }
    }
    return true;
  }

  Flattened flattened_;
  Flattened bases_;
  std::vector<size_t> others_;
  std::vector<ExtendedLeaf> extended_;
};

// A base array of an extended leaf, as far as a deleted one can still be read.
struct BaseArray {
  nb::object shape;
  nb::object dtype;
  nb::object sharding;

  explicit BaseArray(nb::handle array) : sharding(array.attr("sharding")) {
    nb::object aval = array.attr("aval");
    shape = aval.attr("shape");
    dtype = aval.attr("dtype");
  }
};

bool SameAttribute(nb::handle a, nb::handle b, const char* name) {
  return nb::getattr(a, name, nb::none())
      .equal(nb::getattr(b, name, nb::none()));
}

// Whether shardings `a` and `b`, which compare unequal, place an array of rank
// `ndim` alike and differ in nothing but their spelling.
bool AreSpelledDifferently(nb::handle a, nb::handle b, size_t ndim) {
  if (!a.type().is(b.type())) return false;
  if (nb::hasattr(a, "spec")) {
    // `is_equivalent_to` sees devices only. Explicit axes, logical ids and the
    // mesh object are part of an array's type or of the fastpath's key.
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

// The base arrays of a call's extended arguments.
class ExtendedArguments {
 public:
  ExtendedArguments(const Registries& registries,
                    absl::Span<PyObject* const> args) {
    for (PyObject* arg : args) {
      if (registries.IsArray(arg)) continue;
      DispatchTree tree(registries, arg);
      for (const ExtendedLeaf& leaf : tree.extended()) {
        std::vector<BaseArray>& bases = leaves_.emplace_back();
        for (size_t i = 0; i < leaf.num_bases; ++i) {
          bases.emplace_back(tree.bases()[leaf.first_base + i]);
        }
      }
    }
  }

  // The sharding of the argument that `output`, base array number `base` of
  // extended leaf number `position`, should be spelled like. Null if there is
  // none that places it alike.
  nb::handle SpellingFor(const BaseArray& output, size_t position,
                         size_t base) {
    if (position < leaves_.size() && base < leaves_[position].size()) {
      const BaseArray& candidate = leaves_[position][base];
      if (PlacedAlike(candidate, output)) return candidate.sharding;
    }
    const std::vector<const BaseArray*>& distinct = Distinct();
    auto found = std::find_if(distinct.begin(), distinct.end(),
                              [&](const BaseArray* candidate) {
                                return PlacedAlike(*candidate, output);
                              });
    if (found == distinct.end()) return nb::handle();
    return (*found)->sharding;
  }

 private:
  bool PlacedAlike(const BaseArray& a, const BaseArray& b) {
    return a.shape.equal(b.shape) && a.dtype.equal(b.dtype) &&
           (a.sharding.equal(b.sharding) || SpelledDifferently(a, b));
  }

  // As for two shardings. Programs have many keys, but few shardings: mostly
  // the answer is the one before.
  bool SpelledDifferently(const BaseArray& a, const BaseArray& b) {
    size_t ndim = nb::len(a.shape);
    if (!last_a_ || last_ndim_ != ndim || !a.sharding.equal(last_a_) ||
        !b.sharding.equal(last_b_)) {
      last_answer_ = AreSpelledDifferently(a.sharding, b.sharding, ndim);
      last_a_ = a.sharding;
      last_b_ = b.sharding;
      last_ndim_ = ndim;
    }
    return last_answer_;
  }

  // The candidates without those that repeat an earlier one, which keeps the
  // search short: programs have many keys, but few shardings.
  const std::vector<const BaseArray*>& Distinct() {
    if (distinct_.empty()) {
      nb::set seen = Made<nb::set>(PySet_New(nullptr));
      for (const std::vector<BaseArray>& leaf : leaves_) {
        for (const BaseArray& base : leaf) {
          nb::tuple key = nb::make_tuple(base.shape, base.dtype, base.sharding);
          if (seen.contains(key)) continue;
          seen.add(key);
          distinct_.push_back(&base);
        }
      }
    }
    return distinct_;
  }

  std::vector<std::vector<BaseArray>> leaves_;
  std::vector<const BaseArray*> distinct_;
  nb::object last_a_, last_b_;
  size_t last_ndim_ = 0;
  bool last_answer_ = false;
};

// Which outputs the caller asked a sharding for, by `jit(out_shardings=...)`.
class AskedFor {
 public:
  AskedFor(const Registries& registries, nb::handle outputs, size_t num_outputs,
           nb::handle global_cache_key)
      : asked_(num_outputs, false) {
    nb::object leaves = global_cache_key.attr("out_shardings_leaves");
    if (leaves.is_none()) return;
    std::vector<bool> asked;
    for (nb::handle leaf : leaves) asked.push_back(IsSharding(leaf));
    if (std::find(asked.begin(), asked.end(), true) == asked.end()) return;

    nb::object treedef = global_cache_key.attr("out_shardings_treedef");
    if (!treedef.is_none()) {
      // The shardings are a prefix of the outputs.
      std::vector<bool> prefix = std::move(asked);
      nb::object subtrees = treedef.attr("flatten_up_to")(outputs);
      for (size_t i = 0; i < prefix.size(); ++i) {
        nb::object subtree = subtrees[i];
        asked.insert(
            asked.end(),
            nb::len(Flatten(registries.default_registry, subtree).leaves),
            prefix[i]);
      }
    }
    // Where it cannot be told which, all count as asked for.
    asked_ = asked.size() == num_outputs ? std::move(asked)
                                         : std::vector<bool>(num_outputs, true);
  }

  bool operator[](size_t output) const { return asked_[output]; }

 private:
  // What stands for "no sharding" has a type of JAX's own, in Python.
  static bool IsSharding(nb::handle leaf) {
    if (leaf.is_none()) return false;
    std::string_view type = Py_TYPE(leaf.ptr())->tp_name;
    return type != "UnspecifiedValue" && type != "AUTO";
  }

  std::vector<bool> asked_;
};

// `array` on another spelling of its sharding, its buffers shared.
nb::object Respelled(const Registries& registries, nb::handle array,
                     nb::handle sharding) {
  nb::object aval = array.attr("aval");
  nb::object committed = array.attr("_committed");
  // Newer releases can do it without a Python object for each shard. What it
  // makes is committed.
  if (committed.is(Py_True) && registries.CanRewrap()) {
    return array.attr("_rewrap_with_aval_and_sharding")(aval, sharding);
  }
  return registries.array_type(aval, sharding, array.attr("_arrays"), committed,
                               nb::arg("_skip_checks") = true);
}

// The table of a dispatch with extended outputs, as Python dispatched them.
nb::list DispatchedShardings(DispatchTree& outputs, nb::handle fastpath_data,
                             size_t* num_physical) {
  nb::object out_shardings = fastpath_data.attr("out_shardings");
  nb::list stock(out_shardings);  // Which may be any sequence.
  if (nb::len(stock) != outputs.num_leaves()) {
    throw std::invalid_argument(
        "fastpath_data.out_shardings has another length than the outputs");
  }
  nb::list table = Made<nb::list>(PyList_New(0));
  size_t next = 0;
  for (const ExtendedLeaf& output : outputs.extended()) {
    for (; next < output.leaf; ++next) table.append(stock[next]);
    ++next;
    for (size_t i = 0; i < output.num_bases; ++i) {
      nb::object base = outputs.bases()[output.first_base + i];
      nb::object sharding = base.attr("sharding");
      *num_physical += !sharding.is(stock[output.leaf]);
      table.append(sharding);
    }
  }
  for (; next < nb::len(stock); ++next) table.append(stock[next]);
  nb::object out_avals = fastpath_data.attr("out_avals");
  if (nb::len(table) != nb::len(out_avals)) {
    throw std::invalid_argument(
        "fastpath_data.out_avals has another length than the base arrays");
  }
  return table;
}

// Spells the extended outputs like the arguments that they may be fed back as,
// in the table and in `outputs`. Returns how many.
size_t SpellLikeArguments(const Registries& registries, nb::handle tree,
                          DispatchTree& outputs, nb::list& table,
                          absl::Span<PyObject* const> args,
                          nb::handle global_cache_key) {
  ExtendedArguments arguments(registries, args);
  std::optional<AskedFor> asked_for;
  size_t num_respelled = 0;
  for (size_t position = 0; position < outputs.extended().size(); ++position) {
    const ExtendedLeaf& output = outputs.extended()[position];
    for (size_t i = 0; i < output.num_bases; ++i) {
      nb::object base = outputs.bases()[output.first_base + i];
      BaseArray array(base);
      nb::handle spelling = arguments.SpellingFor(array, position, i);
      if (!spelling || spelling.equal(array.sharding)) continue;
      if (!asked_for) {
        asked_for.emplace(registries, tree, outputs.num_leaves(),
                          global_cache_key);
      }
      if ((*asked_for)[output.leaf]) continue;
      outputs.bases()[output.first_base + i] =
          Respelled(registries, base, spelling);
      table[output.table_index + i] = spelling;
      ++num_respelled;
    }
  }
  return num_respelled;
}

}  // namespace

nb::object WithPhysicalOutShardings(nb::object dispatched,
                                    absl::Span<PyObject* const> args,
                                    nb::handle registry,
                                    nb::handle global_cache_key,
                                    PhysicalOutShardings* table) {
  if (!nb::isinstance<nb::tuple>(dispatched) || nb::len(dispatched) < 2) {
    throw std::invalid_argument(
        "the dispatch function did not return (outputs, fastpath_data, ...)");
  }
  nb::object outputs = dispatched[0];
  nb::object fastpath_data = dispatched[1];
  if (fastpath_data.is_none()) return dispatched;

  auto* array_type = reinterpret_cast<PyTypeObject*>(ArrayType().ptr());
  if (HasOnlyArrays(outputs.ptr(), array_type)) return dispatched;

  Registries registries(registry);
  DispatchTree tree(registries, outputs);
  if (tree.extended().empty()) return dispatched;
  PhysicalOutShardings made;
  nb::list shardings =
      DispatchedShardings(tree, fastpath_data, &made.num_physical);
  made.num_respelled = SpellLikeArguments(registries, outputs, tree, shardings,
                                          args, global_cache_key);
  made.shardings = shardings;
  if (table != nullptr) *table = made;
  if (made.num_physical == 0 && made.num_respelled == 0) return dispatched;

  nb::list result(dispatched);
  if (made.num_respelled > 0) {
    result[0] = tree.Rebuilt();
  }
  result[1] =
      fastpath_data.attr("_replace")(nb::arg("out_shardings") = shardings);
  return nb::tuple(result);
}

}  // namespace jax
