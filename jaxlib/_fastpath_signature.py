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
"""What the fastpath compares of a call, by value, and how two calls differ in it.

Nothing here keeps an array, a mesh or an object of the user's alive: shardings
are described, static arguments and pytree structures are kept as hashes and
short texts.
"""

from __future__ import annotations

import itertools
import operator
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

MAX_TEXT = 120  # characters of a user's object that are shown


class Placement(NamedTuple):
  """A sharding by value: where it places an array, and how it says so."""

  where: Any  # equal if, and only if, the data is placed alike
  spelling: Any  # equal if the fastpath takes the two for the same
  text: str
  mesh: str  # empty if it has none


class Leaf(NamedTuple):
  """What the fastpath compares of one flattened argument."""

  shape: tuple[int, ...]
  dtype: Any
  weak_type: bool
  committed: bool
  placement: Placement | None  # None for what is not a jax Array
  layout: int | None
  python_type: str


class Static(NamedTuple):
  """A static argument, by what tells it apart and shows it."""

  path: str
  type_and_hash: tuple[str, int]
  text: str

  @property
  def value(self) -> tuple[Any, ...]:
    # Unequal values may have one hash, as -1 and -2 have.
    return self.type_and_hash, self.text


class Signature(NamedTuple):
  """What the fastpath compares of a call."""

  structure: int  # a hash, of the text too
  statics: tuple[Static, ...]
  leaves: tuple[int, ...]  # numbers that stand for `Leaf`s
  configs: tuple[Any, ...]


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


def whole_call(kind: str) -> Difference:
  """A difference that is of no one argument."""
  return Difference(kind, "", "", "", ADVICE[kind])


def short_text(value: Any) -> str:
  """`repr`, at most `MAX_TEXT` long; the type's name where it raises."""
  try:
    text = repr(value)
  except Exception:  # a user's repr may raise anything
    return f"<{type(value).__name__}>"
  return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


class _MeshNumbers:
  """Numbers that stand for meshes. A mesh that is gone has no number again."""

  def __init__(self) -> None:
    self._numbers: dict[int, tuple[weakref.ref, int]] = {}
    self._next = itertools.count()

  def of(self, mesh: Any) -> int:
    known = self._numbers.get(id(mesh))
    if known is not None and known[0]() is mesh:
      return known[1]
    key, number = id(mesh), next(self._next)
    self._numbers[key] = (
        weakref.ref(mesh, lambda _: self._numbers.pop(key, None)),
        number,
    )
    return number


_meshes = _MeshNumbers()


def _where(sharding: Any, rank: int) -> Any:
  """Equal if, and only if, two shardings place an array of that rank alike."""
  kind = getattr(sharding, "memory_kind", None)
  devices = tuple(device.id for device in sharding._device_assignment)
  try:
    return kind, devices, str(sharding._to_xla_hlo_sharding(rank))
  except Exception:  # a user's sharding may not say
    return kind, devices, hash(sharding)


def _padded(spec: Any, rank: int) -> str:
  axes = list(getattr(spec, "_partitions", spec))
  return f"P({', '.join(map(repr, axes + [None] * (rank - len(axes))))})"


def _text(sharding: Any) -> str:
  spec = getattr(sharding, "spec", None)
  text = short_text(sharding if spec is None else spec)
  text = text.replace("PartitionSpec(", "P(")
  kind = getattr(sharding, "memory_kind", None)
  return text if kind in (None, _default_kind(sharding)) else f"{text} in {kind}"


def _default_kind(sharding: Any) -> str | None:
  try:
    return sharding._device_assignment[0].default_memory().kind
  except Exception:  # not all backends have memories
    return None


def _spelling(sharding: Any) -> Any:
  """Equal if the fastpath takes two shardings for the same."""
  mesh = getattr(sharding, "mesh", None)
  if mesh is None:
    return type(sharding).__name__, hash(sharding)
  return (
      _meshes.of(mesh),
      sharding.spec,
      sharding._memory_kind,
      sharding._logical_device_ids,
  )


def _layout_of(array: Any) -> int | None:
  # To ask a deleted array for its layout crashes jaxlib.
  if array.is_deleted():
    return None
  try:
    return hash(array._pjrt_layout)
  except Exception:  # not all backends have layouts
    return None


def array_key(array: Any) -> tuple[Any, ...]:
  """What the fastpath compares of a jax Array, in the cheapest form."""
  aval = array.aval
  return (
      aval.shape,
      aval.dtype,
      aval.weak_type,
      array._committed,
      _spelling(array.sharding),
      _layout_of(array),
  )


def leaf_of_array(array: Any, key: tuple[Any, ...]) -> Leaf:
  """An `array_key` in the form that shows differences."""
  *compared, spelling, layout = key
  sharding = array.sharding
  where = _where(sharding, len(array.aval.shape))
  mesh = getattr(sharding, "mesh", None)
  mesh_text = "" if mesh is None else short_text(mesh)
  placement = Placement(where, spelling, _text(sharding), mesh_text)
  return Leaf(*compared, placement, layout, "Array")


def leaf_of(value: Any) -> Leaf | None:
  """What the fastpath compares of an argument that is no jax Array.

  None if it compares nothing, since the value is none that it takes.
  """
  if isinstance(value, (bool, int, float, complex)):
    return Leaf((), None, True, False, None, None, type(value).__name__)
  shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
  if isinstance(value, (np.ndarray, np.generic)):
    return Leaf(shape, dtype, False, False, None, None, type(value).__name__)
  return None


def _shown(leaf: Leaf) -> str:
  if leaf.dtype is None:
    return leaf.python_type
  return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"


def _leaf_differences(path: str, old: Leaf, new: Leaf) -> Iterator[Difference]:
  def difference(kind: str, was: str, now: str, advice: str = "") -> Difference:
    return Difference(kind, path, was, now, advice or ADVICE[kind])

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
    old_text, new_text = was.text, now.text
    if old_text == new_text:
      old_text, new_text = f"{was.text} of {was.mesh}", f"{now.text} of {now.mesh}"
    yield difference(PLACEMENT, old_text, new_text)
  elif was.spelling != now.spelling:
    if was.text == now.text or was.mesh != now.mesh:
      yield difference(MESH, was.mesh, now.mesh)
    else:
      advice = f"write {was.text} for it wherever it is placed"
      yield difference(SPELLING, was.text, now.text, advice)
  if old.committed != new.committed:
    said = {True: "committed", False: "uncommitted"}
    yield difference(COMMITTED, said[old.committed], said[new.committed])
  if old.layout != new.layout:
    yield difference(LAYOUT, "another", "this one")


def _static_differences(
    old: tuple[Static, ...], new: tuple[Static, ...]
) -> Iterator[Difference]:
  was, now = ({s.path: s for s in statics} for statics in (old, new))
  nothing = Static("", ("", 0), "not passed")
  for path in dict.fromkeys((*now, *was)):
    a, b = was.get(path, nothing), now.get(path, nothing)
    if a.value != b.value:
      old_text = a.text if a.text != b.text else "another that is shown alike"
      yield Difference(STATIC, path, old_text, b.text, ADVICE[STATIC])


def _structure_difference(
    old: tuple[str, ...], new: tuple[str, ...]
) -> Difference:
  gone = [path for path in old if path not in set(new)]
  added = [path for path in new if path not in set(old)]
  if gone or added:
    was = f"with {gone[0]}" if gone else f"without {added[0]}"
    now = f"with {added[0]}" if added else f"without {gone[0]}"
  else:
    was, now = "other containers or metadata", "these"
  return Difference(STRUCTURE, "", was, now, ADVICE[STRUCTURE])


def distance(old: Signature, new: Signature) -> int:
  """How far two signatures are apart: 0 if they are one."""
  far = 1_000_000
  if old.structure != new.structure or len(old.leaves) != len(new.leaves):
    return far + abs(len(old.leaves) - len(new.leaves))
  unlike = sum(map(operator.ne, old.leaves, new.leaves))
  unlike += sum(map(operator.ne, old.configs, new.configs))
  old_statics = [static.value for static in old.statics]
  new_statics = [static.value for static in new.statics]
  return unlike + (far // 2 if old_statics != new_statics else 0)


def differences(
    old: Signature,
    new: Signature,
    paths: Mapping[int, tuple[str, ...]],
    leaves: Mapping[int, Leaf],
    config_names: tuple[str, ...],
) -> Iterator[Difference]:
  """What tells `new` from `old`, whose numbers the mappings explain."""
  yield from _static_differences(old.statics, new.statics)
  if old.structure != new.structure:
    yield _structure_difference(paths[old.structure], paths[new.structure])
  else:
    for path, was, now in zip(paths[new.structure], old.leaves, new.leaves):
      if was != now:
        yield from _leaf_differences(path, leaves[was], leaves[now])
  for name, was, now in zip(config_names, old.configs, new.configs):
    if was != now:
      yield Difference(CONFIG, name, str(was), str(now), ADVICE[CONFIG])


def config_states() -> tuple[tuple[str, Any], ...]:
  """JAX's configuration values by name: what jit's cache may depend on."""
  config = sys.modules["jax._src.config"]
  ignored = {"explain_cache_misses", "log_compiles", "logging_level"}
  return tuple(
      (name, state)
      for name, state in sorted(vars(config).items())
      if isinstance(state, config.config_ext.Config) and name not in ignored
  )


def config_value(state: Any) -> Any:
  """A configuration value, by value."""
  value = state.value
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  return f"{type(value).__name__} {hash(value) & 0xFFFF:04x}"
