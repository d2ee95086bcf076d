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
"""The pytree structure of a call's arguments: paths of leaves, and metadata."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jaxlib import _fastpath_nnx as nnx
from jaxlib import _fastpath_value as values
from jaxlib._fastpath_value import (
    Value,
    Where,
    described,
    leaf,
    placed_in,
    tree,
)


class Path(NamedTuple):
  """Where a flattened argument is, as JAX writes paths."""

  text: str
  is_base_array: bool  # of an extended leaf, such as a key

  def __str__(self) -> str:
    return f"{self.text} (base array)" if self.is_base_array else self.text


class Structure(NamedTuple):
  """The pytree structure of a call's arguments."""

  paths: tuple[Path, ...]  # of the leaves
  arguments: Mapping[str, Value]  # by their names
  by_name: frozenset[str]  # those that are passed so, and not by position
  text: str  # compared where all else is equal
  may_collide: bool  # whether another structure may have the same key

  def distance(self, other: Structure) -> int:
    """How many leaves differ between the two."""
    return len({*self.paths} ^ {*other.paths})


class Parameters(NamedTuple):
  """The names of a function's arguments."""

  positional: tuple[str, ...]
  rest: str  # the name of `*args`; empty if there is none

  def name(self, index: int) -> str:
    """The argument's name, as the function's signature has it."""
    if index < len(self.positional):
      return self.positional[index]
    return f"{self.rest or 'args'}[{index - self._before_rest}]"

  @property
  def _before_rest(self) -> int:
    return len(self.positional) if self.rest else 0


NO_NAMES = Parameters((), "")


def parameters_of(function: Any) -> Parameters:
  try:
    found = inspect.signature(function).parameters.values()
  except Exception:  # built in, or not a function
    return NO_NAMES
  by_position = (
      inspect.Parameter.POSITIONAL_ONLY,
      inspect.Parameter.POSITIONAL_OR_KEYWORD,
  )
  names = tuple(p.name for p in found if p.kind in by_position)
  rest = [p.name for p in found if p.kind == inspect.Parameter.VAR_POSITIONAL]
  return Parameters(names, rest[0] if rest else "")


ARRAY = leaf("an array", "an array")
NONE = leaf("None", "None")
MISSING = leaf("not there", "not there")


def structure_of(
    registry: Any,
    arguments: Iterable[tuple[str, Any]],
    by_name: frozenset[str],
    renamed: Mapping[str, str],
    text: str,
    may_collide: bool,
) -> Structure:
  """The structure that the dispatch registry makes of named arguments.

  Args:
    registry: the dispatch pytree registry.
    arguments: those that are not static.
    by_name: the arguments that are passed by name.
    renamed: the user's paths of leaves that a library has moved.
    text: of the treedefs.
    may_collide: whether another structure may have its key.
  """
  paths: list[Path] = []
  trees: dict[str, Value] = {}
  for name, value in arguments:
    found, trees[name] = _argument(registry, name, value)
    paths += (
        path._replace(text=renamed.get(path.text, path.text)) for path in found
    )
  return Structure(tuple(paths), trees, by_name, text, may_collide)


def _argument(registry: Any, name: str, value: Any) -> tuple[list[Path], Value]:
  keys, leaves, treedef = _flat(value)
  paths = []
  array_type = sys.modules["jaxlib._jax"].ArrayImpl  # as most leaves are
  for path, each in zip(keys, leaves):
    if each is None:
      continue
    text = nnx.user_path(name + "".join(path), value)
    bases = (each,) if type(each) is array_type else registry.flatten(each)[0]
    paths += [Path(text, base is not each) for base in bases]
  described_leaves = [
      ARRAY if type(each) is array_type else _leaf(registry, each)
      for each in leaves
  ]
  return paths, _node(treedef, keys, described_leaves)


def _flat(value: Any) -> tuple[list[list[str]], list[Any], Any]:
  """The path to each leaf as keys, the leaves, and the treedef. None is a leaf."""
  default = sys.modules["jaxlib._jax.pytree"].default_registry()
  # With its path in newer releases.
  flat, treedef = default.flatten_with_path(
      value, lambda *node: node[-1] is None
  )
  keys = [list(map(str, path)) for path, _ in flat]
  return keys, [each for _, each in flat], treedef


class _Box:
  """Makes a leaf of any value."""

  def __init__(self, value: Any) -> None:
    self.value = value


def partitioned(leaves: Iterable[Any], treedef: Any) -> Value:
  """The description of a flattened pytree, whose leaves are compared by value."""
  try:
    whole = treedef.unflatten(map(_Box, leaves))
    keys, boxes, with_none = _flat(whole)
  except Exception:  # a user's node may not take what is not an array
    return described((tuple(leaves), str(treedef)))
  inner = [
      placed_in(described(box.value), Where.LEAF)
      if isinstance(box, _Box)
      else NONE
      for box in boxes
  ]
  return _node(with_none, keys, inner)


def _treedef(treedef: Any) -> Value:
  return partitioned([None] * treedef.num_leaves, treedef)


values.special["PyTreeDef"] = _treedef
values.special["partitioned"] = partitioned


def leaf_paths(treedef: Any) -> list[str]:
  """The path of each leaf of a treedef, as JAX writes paths."""
  count = treedef.num_leaves
  try:
    whole = treedef.unflatten(_Box(None) for _ in range(count))
    keys, leaves, _ = _flat(whole)
    found = [
        "".join(path)
        for path, each in zip(keys, leaves)
        if isinstance(each, _Box)
    ]
  except Exception:  # a user's node may not take what is not an array
    found = []
  whole = len(found) == count
  return found if whole else [f"[<flat index {i}>]" for i in range(count)]


def _node(
    treedef: Any, keys: list[list[str]], leaves: list[Value], depth: int = 0
) -> Value:
  """The description of a node: its metadata and children, down to the leaves."""
  data = treedef.node_data()
  if data is None:
    return leaves[0]
  kind, made_with = data
  parts: dict[str, Value] = {}
  start = 0
  for index, child in enumerate(treedef.children()):
    end = start + child.num_leaves
    inner = keys[start:end]
    has_key = bool(inner) and depth < len(inner[0])
    label = inner[0][depth] if has_key else _label(kind, made_with, index)
    parts[label] = _node(child, inner, leaves[start:end], depth + 1)
    start = end
  if nnx.is_split_module(kind):
    return tree(kind.__name__, nnx.user_parts(parts))
  if kind not in (dict, list) and not issubclass(kind, tuple):
    parts.update(_metadata(kind, made_with, parts))
  return tree(_type_name(kind), parts)


def _type_name(kind: type) -> str:
  return "None" if kind is type(None) else kind.__name__


def _label(kind: type, made_with: Any, index: int) -> str:
  """The label of a child without leaves, for which JAX has no path."""
  if kind is dict:
    return f"[{made_with[index]!r}]"
  names = getattr(kind, "_fields", None)
  return f".{names[index]}" if names else f"[{index}]"


def _leaf(registry: Any, value: Any) -> Value:
  if value is None:
    return NONE
  treedef = registry.flatten(value)[1]
  data = treedef.node_data()
  if data is None:
    return ARRAY
  kind, made_with = data
  # As it is printed, except for what all such nodes have around it.
  text = str(treedef).removeprefix("PyTreeDef(CustomNode(").partition(", [")[0]
  token = text, described(made_with).token
  return Value(kind.__name__, kind.__name__, token, text, {})


def _metadata(
    kind: type, made_with: Any, children: Mapping[str, Value]
) -> Iterator[tuple[str, Value]]:
  """A node's metadata, as named fields if their names are known."""
  if made_with is None:
    return
  names = _metadata_names(kind, made_with, children)
  if names is None:
    yield "", placed_in(described(made_with), Where.METADATA)
  else:
    for name, value in zip(names, list(made_with)[-len(names) :]):
      yield f".{name}", placed_in(described(value), Where.METADATA)


def _metadata_names(
    kind: type, made_with: Any, children: Mapping[str, Value]
) -> list[str] | None:
  if not dataclasses.is_dataclass(kind) or not isinstance(
      made_with, (tuple, list)
  ):
    return None
  fields = [f.name for f in dataclasses.fields(kind)]
  names = [name for name in fields if f".{name}" not in children]
  # Equinox has what wraps the module before them.
  is_all = len(names) in (len(made_with), len(made_with) - 1)
  return names if names and is_all else None
