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
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
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

// What tells an extended leaf from a plain array.
struct Registries {
  nb::object default_registry;
  nb::handle dispatch_registry;
  nb::object array_type;

  explicit Registries(nb::handle dispatch_registry)
      : default_registry(nb::module_::import_("jaxlib._jax.pytree")
                             .attr("default_registry")()),
        dispatch_registry(dispatch_registry),
        array_type(nb::module_::import_("jaxlib._jax").attr("ArrayImpl")) {}

  bool IsArray(nb::handle value) const { return value.type().is(array_type); }

  // The base arrays of `leaf`, a leaf of the default registry, or nothing if it
  // is not extended.
  std::optional<Flattened> FlattenIfExtended(nb::handle leaf) const {
    if (IsArray(leaf)) return std::nullopt;
    Flattened flattened = Flatten(dispatch_registry, leaf);
    if (nb::len(flattened.leaves) == 1 && flattened.leaves[0].is(leaf)) {
      return std::nullopt;
    }
    for (nb::handle base : flattened.leaves) {
      if (!IsArray(base)) return std::nullopt;
    }
    return flattened;
  }
};

// An output of an extended dtype: where it stands in the outputs, and where the
// first of its base arrays stands in the table.
struct ExtendedOutput {
  size_t leaf_index;
  size_t table_index;
  Flattened flattened;
};

// A base array of an extended leaf, as far as a deleted one can still be read.
struct BaseArray {
  nb::object shape;
  nb::object dtype;
  nb::object sharding;

  BaseArray(nb::handle array, nb::handle sharding)
      : sharding(nb::borrow(sharding)) {
    nb::object aval = array.attr("aval");
    shape = aval.attr("shape");
    dtype = aval.attr("dtype");
  }
};

// The mesh axes that one dimension is split over: `'a'` means `('a',)`, and
// `None`, like a dimension that the spec leaves out, means `()`.
nb::tuple AxesOfDimension(nb::handle partitions, size_t dimension) {
  if (dimension >= nb::len(partitions)) return nb::make_tuple();
  nb::object axes = partitions[dimension];
  if (axes.is_none()) return nb::make_tuple();
  if (nb::isinstance<nb::tuple>(axes)) return nb::borrow<nb::tuple>(axes);
  return nb::make_tuple(axes);
}

// Whether two `PartitionSpec`s say the same of each of `ndim` dimensions.
// Their other fields are compared by `is_equivalent_to`.
bool SameDimensions(nb::handle spec_a, nb::handle spec_b, size_t ndim) {
  nb::object a = spec_a.attr("_partitions");
  nb::object b = spec_b.attr("_partitions");
  for (size_t i = 0; i < ndim; ++i) {
    if (!AxesOfDimension(a, i).equal(AxesOfDimension(b, i))) return false;
  }
  return true;
}

bool SameAttribute(nb::handle a, nb::handle b, const char* name) {
  return nb::getattr(a, name, nb::none())
      .equal(nb::getattr(b, name, nb::none()));
}

// Whether shardings `a` and `b`, which compare unequal, place an array of rank
// `ndim` alike and differ in nothing but their spelling.
bool SpelledDifferently(nb::handle a, nb::handle b, size_t ndim) {
  if (!a.type().is(b.type())) return false;
  if (!SameAttribute(a, b, "memory_kind")) return false;
  if (nb::hasattr(a, "spec")) {
    // `is_equivalent_to` sees devices only. Axes of size one, logical ids and
    // the mesh object are part of an array's type or of the fastpath's key.
    nb::object spec_a = a.attr("spec");
    nb::object spec_b = b.attr("spec");
    if (!a.attr("mesh").is(b.attr("mesh")) ||
        !SameAttribute(a, b, "_logical_device_ids") ||
        !SameAttribute(spec_a, spec_b, "unreduced") ||
        !SameAttribute(spec_a, spec_b, "reduced") ||
        !SameDimensions(spec_a, spec_b, ndim)) {
      return false;
    }
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
      for (nb::handle leaf : Flatten(registries.default_registry, arg).leaves) {
        if (auto flattened = registries.FlattenIfExtended(leaf)) {
          Add(flattened->leaves);
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
  void Add(nb::handle bases) {
    std::vector<BaseArray>& leaf = leaves_.emplace_back();
    for (nb::handle base : bases) {
      leaf.emplace_back(base, base.attr("sharding"));
    }
  }

  static bool PlacedAlike(const BaseArray& a, const BaseArray& b) {
    return a.shape.equal(b.shape) && a.dtype.equal(b.dtype) &&
           (a.sharding.equal(b.sharding) ||
            SpelledDifferently(a.sharding, b.sharding, nb::len(a.shape)));
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
  return registries.array_type(array.attr("aval"), sharding,
                               array.attr("_arrays"), array.attr("_committed"),
                               nb::arg("_skip_checks") = true);
}

// One dispatch, from what Python returned to what jaxlib reads.
class Dispatch {
 public:
  Dispatch(const Registries& registries, nb::handle outputs)
      : registries_(registries),
        outputs_(outputs),
        flattened_(Flatten(registries.default_registry, outputs)) {}

  // Whether any output is extended. Comes first: a program with none must cost
  // next to nothing.
  bool FindExtendedOutputs() {
    size_t table_index = 0;
    for (size_t i = 0; i < nb::len(flattened_.leaves); ++i, ++table_index) {
      auto bases = registries_.FlattenIfExtended(flattened_.leaves[i]);
      if (!bases) continue;
      size_t num_bases = nb::len(bases->leaves);
      extended_.push_back({i, table_index, *std::move(bases)});
      table_index += num_bases - 1;
    }
    return !extended_.empty();
  }

  void FillTable(nb::handle fastpath_data) {
    nb::list stock(fastpath_data.attr("out_shardings"));
    if (nb::len(stock) != nb::len(flattened_.leaves)) {
      throw std::invalid_argument(
          "fastpath_data.out_shardings has another length than the outputs");
    }
    size_t next = 0;
    for (ExtendedOutput& output : extended_) {
      for (; next < output.leaf_index; ++next) table_.append(stock[next]);
      ++next;
      for (nb::handle base : output.flattened.leaves) {
        nb::object sharding = base.attr("sharding");
        num_physical_ += !sharding.is(stock[output.leaf_index]);
        table_.append(sharding);
      }
    }
    for (; next < nb::len(stock); ++next) table_.append(stock[next]);
    nb::object out_avals = fastpath_data.attr("out_avals");
    if (nb::len(table_) != nb::len(out_avals)) {
      throw std::invalid_argument(
          "fastpath_data.out_avals has another length than the base arrays");
    }
  }

  // Spells the extended outputs like the arguments that they may be fed back
  // as.
  void SpellLike(absl::Span<PyObject* const> args,
                 nb::handle global_cache_key) {
    ExtendedArguments arguments(registries_, args);
    std::optional<AskedFor> asked_for;
    for (size_t position = 0; position < extended_.size(); ++position) {
      ExtendedOutput& output = extended_[position];
      bool respelled = false;
      for (size_t i = 0; i < nb::len(output.flattened.leaves); ++i) {
        nb::object base = output.flattened.leaves[i];
        nb::object sharding = table_[output.table_index + i];
        nb::handle spelling =
            arguments.SpellingFor(BaseArray(base, sharding), position, i);
        if (!spelling || spelling.equal(sharding)) continue;
        if (!asked_for) {
          asked_for.emplace(registries_, outputs_, nb::len(flattened_.leaves),
                            global_cache_key);
        }
        if ((*asked_for)[output.leaf_index]) continue;
        output.flattened.leaves[i] = Respelled(registries_, base, spelling);
        table_[output.table_index + i] = spelling;
        ++num_respelled_;
        respelled = true;
      }
      if (respelled) {
        flattened_.leaves[output.leaf_index] =
            output.flattened.treedef.attr("unflatten")(output.flattened.leaves);
      }
    }
  }

  nb::object outputs() const {
    return num_respelled_ == 0
               ? nb::borrow(outputs_)
               : flattened_.treedef.attr("unflatten")(flattened_.leaves);
  }

  PhysicalOutShardings table() const {
    return {table_, num_physical_, num_respelled_};
  }

 private:
  const Registries& registries_;
  nb::handle outputs_;
  Flattened flattened_;
  std::vector<ExtendedOutput> extended_;
  nb::list table_ = Made<nb::list>(PyList_New(0));
  size_t num_physical_ = 0;
  size_t num_respelled_ = 0;
};

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

  Registries registries(registry);
  Dispatch dispatch(registries, outputs);
  if (!dispatch.FindExtendedOutputs()) return dispatched;
  dispatch.FillTable(fastpath_data);
  dispatch.SpellLike(args, global_cache_key);

  PhysicalOutShardings filled = dispatch.table();
  if (table != nullptr) *table = filled;
  if (filled.num_physical == 0 && filled.num_respelled == 0) return dispatched;

  nb::list result(dispatched);
  result[0] = dispatch.outputs();
  result[1] = fastpath_data.attr("_replace")(nb::arg("out_shardings") =
                                                 filled.shardings);
  return nb::tuple(result);
}

}  // namespace jax
