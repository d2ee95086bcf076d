# Copyright 2026 The JAX Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     https://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Stand-ins for what the rule sees of JAX, for the C++ unit tests alone.

Each is as small as its part in a dispatch: pytrees, shardings, arrays, an
extended dtype, and what a dispatch function returns.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import namedtuple


# No closures below: CPython 3.12 and 3.13 lose a reference where there is no
# memory for one, which the tests with a failing allocator would meet.
def make_none(_):
  return None


def make_dict(keys, children):
  return dict(zip(keys, children))


class PyTreeRegistry:
  """Flattens tuples, lists, dicts, None and the types registered with it."""

  def __init__(self):
    self.nodes = {}

  def register_node(self, node_type, flatten, unflatten):
    self.nodes[node_type] = (flatten, unflatten)

  def children(self, tree):
    """The children of a node and what makes one of them, or None for a leaf."""
    if tree is None:
      return [], make_none
    if isinstance(tree, (list, tuple)):
      return list(tree), type(tree)
    if isinstance(tree, dict):
      keys = sorted(tree)
      return [tree[key] for key in keys], functools.partial(make_dict, keys)
    if type(tree) in self.nodes:
      flatten, unflatten = self.nodes[type(tree)]
      children, aux = flatten(tree)
      return list(children), functools.partial(unflatten, aux)
    return None

  def flatten(self, tree):
    node = self.children(tree)
    if node is None:
      return [tree], PyTreeDef(None, [])
    leaves, subtrees = [], []
    for child in node[0]:
      child_leaves, subtree = self.flatten(child)
      leaves += child_leaves
      subtrees.append(subtree)
    return leaves, PyTreeDef(node[1], subtrees)


class PyTreeDef:

  def __init__(self, make, subtrees):
    self.make, self.subtrees = make, subtrees

  @property
  def num_leaves(self):
    if self.make is None:
      return 1
    return sum(subtree.num_leaves for subtree in self.subtrees)

  def children(self):
    return self.subtrees

  def build(self, leaves):
    if self.make is None:
      return next(leaves)
    return self.make([subtree.build(leaves) for subtree in self.subtrees])

  def unflatten(self, leaves):
    return self.build(iter(leaves))

  def flatten_up_to(self, tree):
    if self.make is None:
      return [tree]
    children = default_registry.children(tree)[0]
    if len(children) != len(self.subtrees):
      raise ValueError("not a prefix")
    return [
        leaf for subtree, child in zip(self.subtrees, children)
        for leaf in subtree.flatten_up_to(child)
    ]


default_registry = PyTreeRegistry()
dispatch_registry = PyTreeRegistry()


class Mesh:
  """Compared by identity, as the fastpath does."""

  def __init__(self, explicit_axes=()):
    self.shape = {"a": 2, "b": 2, "one": 1, "uno": 1}
    self.explicit_axes = explicit_axes


class P:

  def __init__(self, *partitions, unreduced=frozenset(), reduced=frozenset()):
    self._partitions = tuple(map(self.canonical_entry, partitions))
    self.unreduced, self.reduced = unreduced, reduced

  @staticmethod
  def canonical_entry(axes):
    if not isinstance(axes, tuple):
      return axes
    return (axes if len(axes) > 1 else axes[0]) if axes else None

  def fields(self):
    return self._partitions, self.unreduced, self.reduced

  def update(self, partitions):
    return P(*partitions, unreduced=self.unreduced, reduced=self.reduced)

  def __eq__(self, other):
    return self.fields() == other.fields()

  def __hash__(self):
    return hash(self.fields())


class NamedSharding:

  def __init__(self, mesh, spec, memory_kind="device", ids=None):
    self.mesh, self.spec = mesh, spec
    self._memory_kind, self._logical_device_ids = memory_kind, ids

  def fields(self):
    return self.mesh, self.spec, self._memory_kind, self._logical_device_ids

  def __eq__(self, other):
    return type(self) is type(other) and self.fields() == other.fields()

  def __hash__(self):
    return hash(self.fields())

  # As lenient as a placement on devices can be: what else tells two shardings
  # apart the rule must find by itself.
  def is_equivalent_to(self, other, ndim):
    return ndim >= 0


class OpaqueSharding:
  """A sharding without a spec: `place` says where, `spelling` how."""

  def __init__(self, place, spelling, memory_kind="device"):
    self.place, self.spelling = place, spelling
    self.memory_kind = memory_kind

  def __eq__(self, other):
    return type(self) is type(other) and vars(self) == vars(other)

  def __hash__(self):
    return hash((self.place, self.spelling, self.memory_kind))

  def is_equivalent_to(self, other, ndim):
    return self.place == other.place


Aval = namedtuple("Aval", "shape dtype")


class ArrayImpl:

  def __init__(self, aval, sharding, arrays, committed, _skip_checks=False):
    self.aval, self.sharding, self._committed = aval, sharding, committed
    self.buffers = arrays
    self.deleted = False

  @property
  def _arrays(self):
    if self.deleted:
      raise RuntimeError("array has been deleted")
    return self.buffers


class Key:
  """An extended dtype: a leaf by default, its base arrays at dispatch."""

  def __init__(self, *bases):
    self.bases = bases


dispatch_registry.register_node(
    Key, lambda key: (key.bases, None), lambda _, bases: Key(*bases))


def array(sharding, shape=(4, 2), dtype="uint32"):
  return ArrayImpl(Aval(shape, dtype), sharding, [object()], True)


def key(*shardings, **kwargs):
  return Key(*[array(sharding, **kwargs) for sharding in shardings])


FastpathData = namedtuple(
    "FastpathData", "xla_executable out_shardings out_avals")


def dispatch(outputs, out_shardings):
  """What a dispatch function returns for `outputs`."""
  bases, _ = dispatch_registry.flatten(outputs)
  avals = [base.aval for base in bases]
  return outputs, FastpathData("executable", out_shardings, avals), False


class UnspecifiedValue:
  pass


CacheKey = namedtuple("CacheKey", "out_shardings_treedef out_shardings_leaves")
NOTHING_ASKED = CacheKey(None, None)


def asked(shardings):
  """The cache key of `jit(out_shardings=shardings)`."""
  leaves, treedef = default_registry.flatten(shardings)
  return CacheKey(treedef, tuple(leaves))


_jax = types.ModuleType("jaxlib._jax")
_jax.ArrayImpl = ArrayImpl
_jax.pytree = types.ModuleType("jaxlib._jax.pytree")
_jax.pytree.default_registry = lambda: default_registry
sys.modules.update({
    "jaxlib": types.ModuleType("jaxlib"),
    "jaxlib._jax": _jax,
    "jaxlib._jax.pytree": _jax.pytree,
})
