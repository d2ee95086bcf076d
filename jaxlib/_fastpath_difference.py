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
from typing import NamedTuple

import numpy as np
from jaxlib import _pjit
from jaxlib._fastpath_signature import Leaf, Path, Signature, Static


class Difference(NamedTuple):
  """One way in which a call differs from an earlier one."""

  kind: str
  path: str  # of the argument, as JAX writes paths; empty for the whole call
  old: str
  new: str
  advice: str

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


def distance(old: Signature, new: Signature) -> int:
  """How far two signatures are apart: 0 if they are one."""
  far = 1_000_000
  if old.structure != new.structure or len(old.leaves) != len(new.leaves):
    return far + abs(len(old.leaves) - len(new.leaves))
  unlike = int(np.count_nonzero(_numbers(old) != _numbers(new)))
  unlike += sum(was != now for was, now in zip(old.configs, new.configs))
  old_statics = [static.value for static in old.statics]
  new_statics = [static.value for static in new.statics]
  return unlike + (far // 2 if old_statics != new_statics else 0)


def differences(
    old: Signature,
    new: Signature,
    paths: Mapping[int, tuple[Path, ...]],
    leaves: Mapping[int, Leaf],
    config_names: tuple[str, ...],
) -> Iterator[Difference]:
  """What tells `new` from `old`, whose numbers the mappings explain."""
  yield from _static_differences(old.statics, new.statics)
  if old.structure != new.structure:
    yield _structure_difference(
        tuple(map(str, paths[old.structure])),
        tuple(map(str, paths[new.structure])),
    )
  else:
    was, now = _numbers(old), _numbers(new)
    for index in np.flatnonzero(was != now):
      path = paths[new.structure][index]
      yield from _leaf_differences(path, leaves[was[index]], leaves[now[index]])
  for name, was, now in zip(config_names, old.configs, new.configs):
    if was != now:
      yield Difference(CONFIG, name, str(was), str(now), ADVICE[CONFIG])


def _numbers(signature: Signature) -> np.ndarray:
  return np.frombuffer(signature.leaves, np.uint32)


def _shown(leaf: Leaf) -> str:
  if leaf.dtype is None:
    return leaf.python_type
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
    if old.python_type != new.python_type:
      yield difference(TYPE, old.python_type, new.python_type)
    return
  if was.where != now.where:
    # Specs that read alike are of different meshes.
    if was.text == now.text:
      old_mesh, new_mesh = f" of {was.mesh}", f" of {now.mesh}"
    else:
      old_mesh, new_mesh = "", ""
    yield difference(PLACEMENT, was.text + old_mesh, now.text + new_mesh)
  elif was.spelling != now.spelling:
    if was.text == now.text or was.mesh != now.mesh:
      yield difference(MESH, was.mesh, now.mesh)
    else:
      advice = _spelling_advice(path, was.text)
      yield difference(SPELLING, was.text, now.text, advice)
  if old.committed != new.committed:
    said = {True: "committed", False: "uncommitted"}
    yield difference(COMMITTED, said[old.committed], said[new.committed])
  if old.layout != new.layout:
    yield difference(LAYOUT, "another", "this one")


def _spelling_advice(path: Path, earlier: str) -> str:
  if not path.is_base_array:
    return f"write {earlier} for it wherever it is placed"
  # The spelling is the base array's, which its owner does not write.
  if not _pjit.physical_out_shardings():
    return "switch this wheel's rule on: JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=1"
  return "place it with jax.device_put and one sharding, wherever it is made"


def _static_differences(
    old: tuple[Static, ...], new: tuple[Static, ...]
) -> Iterator[Difference]:
  was, now = ({s.path: s for s in statics} for statics in (old, new))
  moved = {s.value for s in old} & {s.value for s in new}
  nothing = Static("", ("", 0), NOT_PASSED)
  for path in dict.fromkeys((*now, *was)):
    a, b = was.get(path, nothing), now.get(path, nothing)
    if a.value == b.value:
      continue
    is_moved = nothing in (a, b) and (b if a is nothing else a).value in moved
    old_text = a.text if a.text != b.text else "another that is shown alike"
    advice = STATIC_PASSED_OTHERWISE if is_moved else ADVICE[STATIC]
    yield Difference(STATIC, path, old_text, b.text, advice)


def _structure_difference(
    old: tuple[str, ...], new: tuple[str, ...]
) -> Difference:
  in_old, in_new = set(old), set(new)
  gone = [path for path in old if path not in in_new]
  added = [path for path in new if path not in in_old]
  if gone or added:
    was = f"with {gone[0]}" if gone else f"without {added[0]}"
    now = f"with {added[0]}" if added else f"without {gone[0]}"
  else:
    was, now = "other containers or metadata", "these"
  return Difference(STRUCTURE, "", was, now, ADVICE[STRUCTURE])
