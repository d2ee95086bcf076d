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
"""How two calls differ in what the fastpath compares of them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxlib import _fastpath_remedy as remedy
from jaxlib._fastpath_signature import Leaf, Placement, Signature
from jaxlib._fastpath_structure import Path, Structure
from jaxlib._fastpath_value import Value
from jaxlib._fastpath_value_difference import differing


class Difference(NamedTuple):
  """One way in which a call differs from an earlier one.

  `Dispatch.differences` has the chief one first: what forces a trace, then what
  forces a compilation, then the rest. Each has its own path and advice.
  """

  kind: str
  path: str  # of the argument, as JAX writes paths; empty for the whole call
  old: str
  new: str
  advice: str  # empty where none is known to work
  is_fed_back: bool = False  # an output of the function's own earlier call

  def __str__(self) -> str:
    where = f"{self.path}: " if self.path else ""
    change = f": was {self.old}, now {self.new}" if self.old != self.new else ""
    return f"{where}{self.kind}{change}"


STRUCTURE = "pytree structure"
STATIC = "static argument"
SHAPE = "shape or dtype"
WEAK_TYPE = "weak type"
COMMITTED = "committed or not"
PLACEMENT = "sharding, different placement"
SPELLING = "sharding, same placement, spelled differently"
OTHER_TYPE = "sharding, same placement, of another type"
MESH = "sharding, same placement, on another mesh"
LAYOUT = "layout"
CONFIG = "jit configuration"
GONE = "the same signature as an earlier call, whose entry is gone"
TYPE = "type of the argument"
NOT_TOLD = "nothing that this explanation compares"
NOT_NOTED = "no earlier call was noted to compare with"


# What forces a trace comes first, then what forces a compilation.
_ORDER = (
    STRUCTURE,
    STATIC,
    SHAPE,
    TYPE,
    WEAK_TYPE,
    PLACEMENT,
    MESH,
    OTHER_TYPE,
    LAYOUT,
    COMMITTED,
    SPELLING,
    CONFIG,
)
ADVICE = {
    GONE: "do not call clear_cache() or jax.clear_caches() between calls",
    NOT_NOTED: "explain from the function's first call on",
}
NOT_PASSED = "not passed"
ALIKE = "another object that prints alike"
NOT_THERE = "not there"


def whole_call(kind: str) -> Difference:
  """A difference that is of no one argument."""
  return Difference(kind, "", "", "", ADVICE.get(kind, ""))


Statics = tuple[tuple[str, bool, Any], ...]  # name, by position, value


class Meanings(NamedTuple):
  """What stands behind the numbers in signatures."""

  structures: Mapping[Any, Structure]
  statics: Mapping[Any, tuple[str, Value]]  # paths, and values
  leaves: Mapping[int, Leaf]
  configs: tuple[str, ...]  # names
  library: str = ""  # of the jitted function, if a library's


class FedBack(NamedTuple):
  """An argument that came out of the function's own earlier call."""

  is_steady: bool  # whether it comes out again as it was given now


# Of a flattened argument, by its index, with the number of its leaf.
Origin = Callable[[int, int], "FedBack | None"]


_MAX_WEIGHED = 8


def distance(
    old: Signature, new: Signature, meanings: Meanings
) -> tuple[int, ...]:
  """How far two signatures are apart, to be compared with other distances."""
  unlike = sum(was != now for was, now in zip(old.configs, new.configs))
  statics = len({*old.statics} ^ {*new.statics})
  if old.structure != new.structure or len(old.leaves) != len(new.leaves):
    structures = meanings.structures
    apart = structures[old.structure].distance(structures[new.structure])
    return 1 + bool(statics), apart + statics, unlike
  leaves = meanings.leaves
  was, now = _numbers(old), _numbers(new)
  changed = np.flatnonzero(was != now)
  # Of signatures in which as much differs, the one where it differs least.
  severity = sum(
      _severity(leaves[was[index]], leaves[now[index]])
      for index in changed[:_MAX_WEIGHED]
  )
  return int(bool(statics)), len(changed) + unlike + statics, severity


def _severity(old: Leaf, new: Leaf) -> int:
  if (old.dtype is None) != (new.dtype is None):
    return 6
  if old.dtype != new.dtype:
    return 5
  if old.shape != new.shape:
    return 4
  was, now = old.placement, new.placement
  if was is None or now is None:
    return 3
  if not _same_place(was, now):
    return 2
  return int(was.mesh != now.mesh)


def differences(
    old: Signature, new: Signature, meanings: Meanings, origin: Origin
) -> list[Difference]:
  """What tells `new` from `old`, the chief difference first."""
  found = [
      *_static_differences(old.statics, new.statics, meanings),
      *_argument_differences(old, new, meanings, origin),
  ]
  found += _config_differences(old, new, meanings.configs)
  return sorted(found, key=lambda each: _ORDER.index(each.kind))


def _config_differences(
    old: Signature, new: Signature, names: tuple[str, ...]
) -> Iterator[Difference]:
  changed = {
      name: (was, now)
      for name, was, now in zip(names, old.configs, new.configs)
      if was != now
  }
  if "abstract_mesh_context_manager" in changed:
    changed.pop("device_context", None)  # `jax.set_mesh` sets both
  for name, (was, now) in changed.items():
    advice = remedy.config(name, str(now), _code_of(now))
    yield Difference(CONFIG, name, str(was), str(now), advice)


def _code_of(value: Any) -> str:
  if value is None or isinstance(value, (bool, int, float, str)):
    return repr(value.value if isinstance(value, enum.Enum) else value)
  return getattr(value, "code", "")


def _argument_differences(
    old: Signature, new: Signature, meanings: Meanings, origin: Origin
) -> Iterator[Difference]:
  structures, leaves = meanings.structures, meanings.leaves
  was, now = _numbers(old), _numbers(new)
  paths = structures[new.structure].paths
  if old.structure != new.structure:
    own = {
        path.text
        for index, path in enumerate(paths)
        if origin(index, now[index]) is not None
    }
    yield from structure_differences(
        structures[old.structure], structures[new.structure], own
    )
    return
  for index in np.flatnonzero(was != now):
    fed_back = origin(index, now[index])
    pair = leaves[was[index]], leaves[now[index]]
    for each in _leaf_differences(paths[index], *pair, fed_back):
      yield each._replace(is_fed_back=fed_back is not None)


def _numbers(signature: Signature) -> np.ndarray:
  return np.frombuffer(signature.leaves, np.uint32)


def _shown(leaf: Leaf) -> str:
  if leaf.dtype is None:
    return leaf.kind
  return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"


def _leaf_differences(
    path: Path, old: Leaf, new: Leaf, fed_back: FedBack | None
) -> Iterator[Difference]:
  def difference(kind: str, was: str, now: str, advice: str) -> Difference:
    return Difference(kind, str(path), was, now, advice)

  is_own = fed_back is not None
  is_steady = is_own and fed_back.is_steady
  if (old.dtype is None) != (new.dtype is None):
    advice = remedy.type_of_argument(path, old, new)
    yield difference(TYPE, _shown(old), _shown(new), advice)
    return
  if (old.shape, old.dtype) != (new.shape, new.dtype):
    advice = remedy.shape(path, old, new, is_own, is_steady)
    yield difference(SHAPE, _shown(old), _shown(new), advice)
    return
  if old.weak_type != new.weak_type:
    weak = {True: "weakly typed", False: "strongly typed"}
    advice = remedy.weak_type(path, new, is_own)
    yield difference(
        WEAK_TYPE, weak[old.weak_type], weak[new.weak_type], advice
    )
  was, now = old.placement, new.placement
  if was is None or now is None:
    if old.kind != new.kind:
      advice = remedy.type_of_argument(path, old, new)
      yield difference(TYPE, old.kind, new.kind, advice)
    return
  kind = _placement_kind(was, now)
  if kind == SPELLING:
    advice = remedy.spelled(path, old, new, is_own, is_steady)
    yield difference(kind, was.text, now.text, advice)
  elif kind is not None:
    shown = (was.mesh, now.mesh) if kind == MESH else _placements(was, now)
    advice = remedy.placed(path, old, new, is_own, is_steady)
    yield difference(kind, *shown, advice)
  elif old.committed != new.committed:  # else that goes away with the rest
    said = {True: "committed", False: "uncommitted"}
    advice = remedy.committed(path, old, new, is_own)
    yield difference(
        COMMITTED, said[old.committed], said[new.committed], advice
    )
  if old.layout != new.layout and kind is None:
    advice = remedy.layout(path, old, new, is_own)
    yield difference(LAYOUT, old.layout, new.layout, advice)


def _placement_kind(was: Placement, now: Placement) -> str | None:
  if not _same_place(was, now):
    return PLACEMENT
  if was.spelling == now.spelling:
    return None
  if not was.mesh or not now.mesh:
    return OTHER_TYPE
  is_mesh = was.text == now.text or was.mesh != now.mesh
  return MESH if is_mesh else SPELLING


def _same_place(a: Placement, b: Placement) -> bool:
  return (a.where, a.devices) == (b.where, b.devices)


def _placements(old: Placement, new: Placement) -> tuple[str, str]:
  """Two placements, as briefly as tells them apart."""
  if old.text != new.text:
    return old.text, new.text
  if old.where != new.where:
    return f"{old.text} of {old.mesh}", f"{new.text} of {new.mesh}"
  was, now = (
      f"{each.text} on devices {', '.join(map(str, each.devices[:8]))}"
      for each in (old, new)
  )
  return was, now


def _static_differences(
    old: Statics, new: Statics, meanings: Meanings
) -> Iterator[Difference]:
  values, library = meanings.statics, meanings.library
  was, now = ({name: rest for name, *rest in each} for each in (old, new))
  for name in dict.fromkeys((*now, *was)):
    a, b = was.get(name), now.get(name)
    if a is None or b is None:
      texts = (
          values[each[1]][1].text if each else NOT_PASSED for each in (a, b)
      )
      yield Difference(STATIC, name, *texts, f"pass {name} in every call")
      continue
    if a[1] != b[1]:
      yield from static_value_differences(values[a[1]], values[b[1]], library)
    elif a[0] != b[0]:
      yield _other_way(STATIC, name, b[0])


def _other_way(kind: str, name: str, is_by_position: bool) -> Difference:
  ways = ("by name", "by position")
  old, new = ways if is_by_position else reversed(ways)
  return Difference(kind, name, old, new, remedy.ONE_WAY)


def static_value_differences(
    old: tuple[str, Value],
    new: tuple[str, Value],
    library: str = "",
    is_strict: bool = False,
) -> Iterator[Difference]:
  """What tells one static argument from another, to the end."""
  (path, was), (_, now) = old, new
  found = list(differing(path, was, now, is_strict))
  if not found and not is_strict:  # equal in all that is looked at
    found = [(path, was, now)]
  for where, a, b in found:
    advice = remedy.value(where, a, b, library)
    is_whole = where == path
    yield Difference(
        STATIC, where, *_texts(a, b, None if is_whole else (was, now)), advice
    )


_MAX_WHOLE = 40  # characters


def _texts(
    was: Value | None,
    now: Value | None,
    wholes: tuple[Value, Value] | None = None,
) -> tuple[str, str]:
  old, new = (NOT_THERE if each is None else each.text for each in (was, now))
  if old == new:
    return ALIKE, new
  if wholes is not None and wholes[0].type_name not in ("arguments", "tuple"):
    had, has = (whole.text for whole in wholes)
    if max(len(had), len(has)) <= _MAX_WHOLE:
      return f"{old} in {had}", f"{new} in {has}"
  return old, new


def structure_differences(
    old: Structure, new: Structure, own: set[str], is_strict: bool = False
) -> Iterator[Difference]:
  """What tells one structure from another, to the end."""
  found = []
  for path in dict.fromkeys((*old.arguments, *new.arguments)):
    was, now = old.arguments.get(path), new.arguments.get(path)
    if was is None or now is None:
      yield _not_passed_argument(path, was, now)
      continue
    found += differing(path, was, now, is_strict)
    if (path in old.by_name) != (path in new.by_name):
      yield _other_way(STRUCTURE, path, path not in new.by_name)
  if (
      not found
      and not is_strict
      and old.arguments.keys() == new.arguments.keys()
      and old.by_name == new.by_name
  ):
    yield Difference(STRUCTURE, "", *_whole(old.text, new.text), "")
  for path, was, now in found:
    is_own = any(_is_within(each, path) for each in own)
    advice = remedy.structure(path, was, now, is_own)
    texts = _structure_texts(was, now)
    yield Difference(STRUCTURE, path, *texts, advice, is_own)


def _is_within(inner: str, path: str) -> bool:
  return inner.startswith(path) and inner[len(path) : len(path) + 1] in "[."


def _whole(old: str, new: str) -> tuple[str, str]:
  return (ALIKE, new) if old == new else (old, new)


def _not_passed_argument(
    path: str, was: Value | None, now: Value | None
) -> Difference:
  texts = (
      NOT_PASSED if each is None else _container(each) for each in (was, now)
  )
  return Difference(STRUCTURE, path, *texts, f"pass {path} in every call")


def _structure_texts(was: Value | None, now: Value | None) -> tuple[str, str]:
  a, b = (
      NOT_THERE if each is None else _container(each) for each in (was, now)
  )
  return (ALIKE, b) if a == b else (a, b)


def _container(value: Value) -> str:
  """What a part of a structure is, in words."""
  if not value.is_node:
    return value.text
  article = "an" if value.type_name[:1] in "aeiouAEIOU" else "a"
  size = (
      f" of {len(value.parts)}" if value.type_name in ("list", "tuple") else ""
  )
  return f"{article} {value.type_name}{size}"
