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

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxlib import _pjit
from jaxlib._fastpath_signature import Leaf, Path, Placement, Signature


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

ADVICE = {
    STRUCTURE: "pass the same pytree structure in every call",
    STATIC: "each value has an entry of its own; pass what varies as an array",
    SHAPE: "each shape and dtype has an entry of its own; pad, or cast, to few",
    WEAK_TYPE: "give it a dtype before the call: jnp.asarray(x, dtype)",
    COMMITTED: "place it with jax.device_put before the first call, too",
    PLACEMENT: "place it as in the earlier call, with jax.device_put",
    MESH: "use one Mesh object for it",
    OTHER_TYPE: "place it with one sharding in every call",
    NOT_TOLD: "compare what the two calls were given",
    LAYOUT: "give it one layout, with jax.device_put and a Format",
    CONFIG: "set it once, before the first call",
    GONE: (
        "its entry was evicted, or cleared, or went with the function that had"
        " it: keep that alive, and clear no caches in a loop"
    ),
    NOT_NOTED: "explain from the function's first call on",
    TYPE: "pass the same type of value in every call",
}
STATIC_PASSED_OTHERWISE = (
    "pass it by position in every call, or by name in every call"
)
NOT_PASSED = "not passed"


def whole_call(kind: str) -> Difference:
  """A difference that is of no one argument."""
  return Difference(kind, "", "", "", ADVICE[kind])


Statics = tuple[tuple[str, Any], ...]


class Structure(NamedTuple):
  """The pytree structure of a call's arguments."""

  paths: tuple[Path, ...]  # of the leaves
  text: str


class Meanings(NamedTuple):
  """What stands behind the numbers in signatures."""

  structures: Mapping[int, Structure]
  statics: Mapping[Any, str]  # texts
  leaves: Mapping[int, Leaf]
  configs: tuple[str, ...]  # names


_MAX_WEIGHED = 8
_SHOWN_BEFORE, _SHOWN_AFTER = 30, 50  # characters, around a difference


def distance(
    old: Signature, new: Signature, leaves: Mapping[int, Leaf]
) -> tuple[int, ...]:
  """How far two signatures are apart, to be compared with other distances."""
  unlike = sum(was != now for was, now in zip(old.configs, new.configs))
  parts = (old.structure != new.structure) + (old.statics != new.statics)
  if old.structure != new.structure or len(old.leaves) != len(new.leaves):
    return parts, abs(len(old.leaves) - len(new.leaves)), unlike
  was, now = _numbers(old), _numbers(new)
  changed = np.flatnonzero(was != now)
  # Of signatures in which as much differs, the one where it differs least.
  severity = sum(
      _severity(leaves[was[index]], leaves[now[index]])
      for index in changed[:_MAX_WEIGHED]
  )
  return parts, len(changed) + unlike, severity


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
    old: Signature, new: Signature, meanings: Meanings
) -> Iterator[Difference]:
  """What tells `new` from `old`."""
  yield from _static_differences(old.statics, new.statics, meanings.statics)
  structures, leaves = meanings.structures, meanings.leaves
  if old.structure != new.structure:
    yield _structure_difference(
        structures[old.structure], structures[new.structure]
    )
  else:
    paths = structures[new.structure].paths
    was, now = _numbers(old), _numbers(new)
    for index in np.flatnonzero(was != now):
      yield from _leaf_differences(
          paths[index], leaves[was[index]], leaves[now[index]]
      )
  for name, was, now in zip(meanings.configs, old.configs, new.configs):
    if was != now:
      yield Difference(CONFIG, name, str(was), str(now), ADVICE[CONFIG])


def _numbers(signature: Signature) -> np.ndarray:
  return np.frombuffer(signature.leaves, np.uint32)


def _shown(leaf: Leaf) -> str:
  if leaf.dtype is None:
    return leaf.kind
  return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"


def _leaf_differences(path: Path, old: Leaf, new: Leaf) -> Iterator[Difference]:
  def difference(kind: str, was: str, now: str, advice: str = "") -> Difference:
    return Difference(kind, str(path), was, now, advice or ADVICE[kind])

  if (old.dtype is None) != (new.dtype is None):
    yield difference(TYPE, _shown(old), _shown(new))
    return
  if (old.shape, old.dtype) != (new.shape, new.dtype):
    yield difference(SHAPE, _shown(old), _shown(new))
    return
  if old.weak_type != new.weak_type:
    weak = {True: "weakly typed", False: "strongly typed"}
    yield difference(WEAK_TYPE, weak[old.weak_type], weak[new.weak_type])
  was, now = old.placement, new.placement
  if was is None or now is None:
    if old.kind != new.kind:
      yield difference(TYPE, old.kind, new.kind)
    return
  if not _same_place(was, now):
    yield difference(PLACEMENT, *_placements(was, now))
  elif was.spelling != now.spelling:
    if not was.mesh or not now.mesh:
      yield difference(OTHER_TYPE, was.text, now.text)
    elif was.text == now.text or was.mesh != now.mesh:
      yield difference(MESH, was.mesh, now.mesh)
    else:
      advice = _spelling_advice(path, was.text)
      yield difference(SPELLING, was.text, now.text, advice)
  if old.committed != new.committed:
    said = {True: "committed", False: "uncommitted"}
    yield difference(COMMITTED, said[old.committed], said[new.committed])
  if old.layout != new.layout:
    yield difference(LAYOUT, "another", "this one")


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


def _spelling_advice(path: Path, earlier: str) -> str:
  if not path.is_base_array:
    return f"write {earlier} for it wherever it is placed"
  # The spelling is the base array's, which its owner does not write.
  if not _pjit.physical_out_shardings():
    return "switch this wheel's rule on: JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=1"
  return "place it with jax.device_put and one sharding, wherever it is made"


def _static_differences(
    old: Statics, new: Statics, texts: Mapping[Any, str]
) -> Iterator[Difference]:
  was, now = dict(old), dict(new)
  moved = {*was.values()} & {*now.values()}
  for path in dict.fromkeys((*now, *was)):
    a, b = was.get(path), now.get(path)
    if a == b:
      continue
    old_text, new_text = texts.get(a, NOT_PASSED), texts.get(b, NOT_PASSED)
    if old_text == new_text:
      old_text = "another that is shown alike"
    is_moved = (a is None and b in moved) or (b is None and a in moved)
    advice = STATIC_PASSED_OTHERWISE if is_moved else ADVICE[STATIC]
    yield Difference(STATIC, path, old_text, new_text, advice)


def _structure_difference(old: Structure, new: Structure) -> Difference:
  in_old, in_new = set(old.paths), set(new.paths)
  gone = [path for path in old.paths if path not in in_new]
  added = [path for path in new.paths if path not in in_old]
  if gone or added:
    was = f"with {gone[0]}" if gone else f"without {added[0]}"
    now = f"with {added[0]}" if added else f"without {gone[0]}"
  else:
    was, now = _where_they_part(old.text, new.text)
  return Difference(STRUCTURE, "", was, now, ADVICE[STRUCTURE])


def _where_they_part(old: str, new: str) -> tuple[str, str]:
  """A little of two texts around the first character that differs."""
  if old == new:
    return "another that is shown alike", new[:_SHOWN_AFTER]
  pairs = enumerate(zip(old, new))
  shorter = min(len(old), len(new))
  same = next((index for index, (a, b) in pairs if a != b), shorter)
  start, end = max(0, same - _SHOWN_BEFORE), same + _SHOWN_AFTER
  was, now = (
      f"{'...' * (start > 0)}{text[start:end]}{'...' * (len(text) > end)}"
      for text in (old, new)
  )
  return was, now
