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
"""What the fastpath compares of a call, by value.

Nothing here keeps an array, a mesh or an object of the user's alive: shardings
are described, static arguments and pytree structures are kept as hashes and
short texts.
"""

from __future__ import annotations

import itertools
import sys
import weakref
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
  layout: int | None  # a hash
  python_type: str


class Path(NamedTuple):
  """Where a flattened argument is, as JAX writes paths."""

  text: str
  is_base_array: bool  # of an extended leaf, such as a key

  def __str__(self) -> str:
    return f"{self.text} (base array)" if self.is_base_array else self.text


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
  leaves: bytes  # 32-bit numbers that stand for `Leaf`s
  configs: tuple[Any, ...]


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


def _text(sharding: Any) -> str:
  spec = getattr(sharding, "spec", None)
  text = short_text(sharding if spec is None else spec)
  text = text.replace("PartitionSpec(", "P(")
  kind = getattr(sharding, "memory_kind", None)
  is_default = kind in (None, _default_kind(sharding))
  return text if is_default else f"{text} in {kind}"


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


# What the fastpath reads of a jax Array: shape, dtype, weak type, committed,
# sharding and layout.
Compared = tuple[tuple[int, ...], Any, bool, bool, Any, Any]


def compared_by_value(compared: Compared) -> tuple[Any, ...]:
  """It in a form that keeps nothing alive, and is equal where it is."""
  *others, sharding, layout = compared
  return *others, _spelling(sharding), hash(layout)


def array_leaf(compared: Compared) -> Leaf:
  """It in the form that shows differences."""
  shape, dtype, weak_type, committed, sharding, layout = compared
  mesh = getattr(sharding, "mesh", None)
  placement = Placement(
      _where(sharding, len(shape)),
      _spelling(sharding),
      _text(sharding),
      "" if mesh is None else short_text(mesh),
  )
  kind = "Array"
  return Leaf(shape, dtype, weak_type, committed, placement, hash(layout), kind)


def other_leaf(value: Any) -> Leaf | None:
  """What the fastpath compares of an argument that is no jax Array.

  None if it compares nothing, since the value is none that it takes.
  """
  if isinstance(value, (bool, int, float, complex)):
    return Leaf((), None, True, False, None, None, type(value).__name__)
  if isinstance(value, (np.ndarray, np.generic)):
    kind = type(value).__name__
    return Leaf(value.shape, value.dtype, False, False, None, None, kind)
  return None


class _Opaque(NamedTuple):
  """A configuration value that is no simple one."""

  type_and_hash: tuple[str, int]
  text: str

  def __str__(self) -> str:
    return self.text


_MAX_OPAQUE = 256
_opaque: dict[tuple[str, int], _Opaque] = {}


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
  key = type(value).__name__, hash(value)
  known = _opaque.get(key)
  if known is None:
    if len(_opaque) >= _MAX_OPAQUE:
      _opaque.clear()
    known = _opaque[key] = _Opaque(key, short_text(value))
  return known
