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

import sys
from typing import Any, NamedTuple

import numpy as np
from jaxlib._fastpath_text import short_text
from jaxlib._fastpath_value import numbers


class Placement(NamedTuple):
  """A sharding by value: where it places an array, and how it says so."""

  where: Any  # equal if the data is placed alike on the same devices
  devices: tuple[int, ...]
  spelling: Any  # equal if the fastpath takes the two for the same
  text: str
  mesh: str  # empty if it has none
  code: str  # to write, where `mesh` is the mesh; empty if there is none


class Leaf(NamedTuple):
  """What the fastpath compares of one flattened argument."""

  shape: tuple[int, ...]
  dtype: Any
  weak_type: bool
  committed: bool
  placement: Placement | None  # None for what is not a jax Array
  layout: str  # empty where there is none
  kind: str  # of value: "Array", "ndarray" or a Python type


class Signature(NamedTuple):
  """What the fastpath compares of a call."""

  structure: int  # a hash, of what its nodes are made with, too
  # Name, whether by position, and what stands for the value.
  statics: tuple[tuple[str, bool, Any], ...]
  leaves: bytes  # 32-bit numbers that stand for `Leaf`s
  configs: tuple[Any, ...]


def static_key(value: Any) -> Any:
  """What stands for a static argument. It keeps no object of a user's alive."""
  # Unequal ones may have one hash, as -1 and -2 have, and so have tuples of
  # them.
  if value is None or type(value) in _EXACT:
    return type(value).__name__, value
  if type(value) is tuple and len(value) <= _MAX_TUPLE:
    return "tuple", *map(static_key, value)
  return type(value).__qualname__, id(type(value)), hash(value)


_MAX_TUPLE = 16
_EXACT = (bool, int, float)


def is_exact(key: Any) -> bool:
  """Whether the key of a static argument has its value, and no hash."""
  if key[0] == "tuple":
    return all(map(is_exact, key[1:]))
  return len(key) == 2


# An argument's name, whether it is passed by position, and its treedef.
Treedefs = list[tuple[str, bool, Any]]


def structure_key(treedefs: Treedefs) -> int:
  """What stands for the pytree structures of named arguments."""
  metadata: list[int] = []  # which a treedef's own hash leaves out

  def note(children: Any, made_with: Any) -> None:
    del children
    if made_with is not None:
      metadata.append(_metadata_hash(made_with))

  for *_, treedef in treedefs:
    treedef.walk(note, bool, [None] * treedef.num_leaves)
  return hash((*treedefs, *metadata))


def may_collide(treedefs: Treedefs) -> bool:
  """Whether other structures may have one key.

  Those of texts do not. Hashes of numbers may be equal, and a user's.
  """
  metadata: list[Any] = []

  def note(children: Any, made_with: Any) -> None:
    del children
    metadata.append(made_with)

  for *_, treedef in treedefs:
    treedef.walk(note, bool, [None] * treedef.num_leaves)
  return not all(map(_is_text, metadata))


def _is_text(made_with: Any) -> bool:
  if type(made_with) is list:
    return {*map(type, made_with)} <= {str}
  # A key's implementation is one of JAX's few.
  return made_with is None or type(made_with).__module__.startswith("jax.")


def _metadata_hash(made_with: Any) -> int:
  try:
    return hash(tuple(made_with) if type(made_with) is list else made_with)
  except Exception:  # JAX will say what it thinks of that
    return 0


def _where(sharding: Any, rank: int) -> Any:
  """Equal if two shardings of the same devices place such an array alike."""
  kind = getattr(sharding, "memory_kind", None)
  try:
    return kind, str(sharding._to_xla_hlo_sharding(rank))
  except Exception:  # a user's sharding may not say
    return kind, hash(sharding)


def _text_and_code(sharding: Any) -> tuple[str, str]:
  """What is shown of a sharding, and what to write for it."""
  spec = getattr(sharding, "spec", None)
  kind = getattr(sharding, "memory_kind", None)
  is_default = kind in (None, _default_kind(sharding))
  if spec is not None:
    text = short_text(spec).replace("PartitionSpec(", "P(")
    memory = "" if is_default else f", memory_kind={kind!r}"
    code = f"NamedSharding(mesh, {text}{memory})"
  elif type(sharding).__name__ == "SingleDeviceSharding":
    (device,) = sharding._device_assignment
    text = code = device_code(device)
    if not is_default:
      code = f"SingleDeviceSharding({code}, memory_kind={kind!r})"
  else:
    text, code = short_text(sharding), ""
  return text if is_default else f"{text} in {kind}", code


def _mesh_text(mesh: Any) -> str:
  """A mesh by its axes. What type they are is said if one is not usual."""
  axes = ", ".join(f"{name!r}: {size}" for name, size in mesh.shape.items())
  types = [str(each) for each in getattr(mesh, "axis_types", None) or ()]
  if all("Auto" in each for each in types):
    return f"Mesh({axes})"
  return f"Mesh({axes}, axis_types=({', '.join(types)}))"


def device_code(device: Any) -> str:
  """A device as the user writes it."""
  backends = sys.modules["jax._src.xla_bridge"]
  for argument in ((), (device.platform,)):
    devices = backends.devices(*argument)
    if device in devices:
      name = f"jax.devices({', '.join(map(repr, argument))})"
      return f"{name}[{devices.index(device)}]"
  return short_text(device)


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
      numbers.of(mesh),
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
  text, code = _text_and_code(sharding)
  placement = Placement(
      _where(sharding, len(shape)),
      tuple(device.id for device in sharding._device_assignment),
      _spelling(sharding),
      text,
      "" if mesh is None else _mesh_text(mesh),
      code,
  )
  shown = "" if layout is None else str(layout)
  return Leaf(shape, dtype, weak_type, committed, placement, shown, "Array")


# A subclass counts as the first that it is of.
_PYTHON_SCALARS = (bool, int, float, complex)


def other_leaf(value: Any) -> Leaf | None:
  """What the fastpath compares of an argument that is not a jax Array.

  None if jit does not take such a value.
  """
  # First, since np.float64 and np.complex128 are Python scalars too.
  if isinstance(value, (np.ndarray, np.generic)):
    dtype = sys.modules["jax._src.dtypes"].canonicalize_dtype(value.dtype)
    return Leaf(value.shape, dtype, False, False, None, "", "ndarray")
  for kind in _PYTHON_SCALARS:
    if isinstance(value, kind):
      return Leaf((), None, True, False, None, "", kind.__name__)
  return None


class _Opaque(NamedTuple):
  """A configuration value that is no simple one."""

  type_and_hash: tuple[str, int]
  text: str
  code: str  # to write; empty if there is none

  def __str__(self) -> str:
    return self.text


_MAX_OPAQUE = 256
_opaque: dict[tuple[str, int], _Opaque] = {}


# Parts of jit's key that are none of the trace context.
_ONLY_OF_JIT = (
    "device_context",
    "jax_memory_fitting_level",
    "jax_optimization_level",
)


def config_states() -> tuple[tuple[str, Any], ...]:
  """JAX's configuration values by name: what jit's cache depends on.

  Before 0.10 JAX does not say which those are, and they are all of them.
  """
  config = sys.modules["jax._src.config"]
  # Since 0.11 not all of them are in `config`.
  states = {
      _config_name(variable, state): state
      for name, module in tuple(sys.modules.items())
      if name.startswith("jax._src.") and module is not None
      for variable, state in tuple(vars(module).items())
      if isinstance(state, config.config_ext.Config)
  }
  wanted = states.keys() - {"jax_explain_cache_misses", "jax_log_compiles"}
  if hasattr(config.config_ext, "trace_context_names"):
    wanted &= {*config.config_ext.trace_context_names(), *_ONLY_OF_JIT}
  else:
    wanted &= {_config_name(*each) for each in vars(config).items()}
  return tuple((name, states[name]) for name in sorted(wanted))


def _config_name(variable: str, state: Any) -> str:
  """The name of a configuration value, which has no `name` before 0.10."""
  name = f"jax_{variable}"
  if name not in sys.modules["jax._src.config"].config.values:
    name = variable
  return getattr(state, "name", name)


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
    known = _opaque[key] = _Opaque(key, short_text(value), _code(value))
  return known


def _code(value: Any) -> str:
  is_device = hasattr(value, "platform") and hasattr(value, "device_kind")
  return device_code(value) if is_device else ""
