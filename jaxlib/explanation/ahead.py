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
"""Remembers what was lowered ahead of time, to explain a call that compiles again.

Nothing here keeps an array or a function alive. May run in any thread.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxlib import _fastpath_equinox as equinox
from jaxlib import _fastpath_locks as locks
from jaxlib import _fastpath_origin as origin
from jaxlib import _fastpath_signature as signatures
from jaxlib._fastpath_difference import Difference
from jaxlib._fastpath_structure import parameters_of
from jaxlib._fastpath_text import short_text

KIND = "differs from what was compiled ahead of time"
_UNSHARDED = "unsharded"
_MAX_LOWERED = 16  # of one function

_lock = locks.new()


class _Argument(NamedTuple):
  """What a compilation depends on in one flattened argument."""

  aval: str
  where: Any  # equal if the two are placed alike; None if unsharded
  sharding: str
  struct: str  # code to lower with


_KIND_OF_LINE = "ahead of time"
_MAX_NAMES = 4096
_lines: dict[str, str] = {}  # of the functions that were lowered, by their name
_lowered: dict[int, tuple[weakref.ref, list[dict[str, _Argument]]]] = {}


def note(lower: Mapping[str, Any]) -> None:
  """Notes a lowering, from the locals of JAX's function for it."""
  fun = lower["jit_func"].__wrapped__
  found = dict(_arguments(fun, lower["args"], lower["kwargs"]))
  key = id(fun)
  ref = weakref.ref(fun, lambda _: _lowered.pop(key, None))
  line = origin.definition_of(fun)[0].line
  with _lock:
    known = _lowered.get(key)
    if known is None or known[0]() is not fun:
      known = _lowered[key] = ref, []
    known[1].append(found)
    del known[1][:-_MAX_LOWERED]
    if len(_lines) == _MAX_NAMES:
      _lines.clear()
    _lines[origin.name_of(fun, getattr(fun, "__name__", "<unnamed"))] = line


def definition_of(jax_name: str) -> origin.Definition:
  """Where an ahead-of-time compiled function is defined, by JAX's name for it."""
  line = _lines.get(origin.without_jit(jax_name))
  text = _KIND_OF_LINE if line is None else f"{line}, {_KIND_OF_LINE}"
  return origin.Definition(text, origin.OWN)


def differences(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Difference, ...]:
  """How a call that compiled differs from the closest that was lowered.

  Empty if the function was not lowered ahead of time.
  """
  known = _lowered.get(id(fun))
  if known is None or known[0]() is not fun:
    return ()
  now = dict(_arguments(fun, args, kwargs))
  found = min((tuple(_differing(was, now)) for was in known[1]), key=len)
  return found or (Difference(KIND, "", "", "", _LOWER_ALIKE),)


_LOWER_ALIKE = "lower it under the same jax configuration as it is called"


def _differing(
    old: dict[str, _Argument], new: dict[str, _Argument]
) -> Iterator[Difference]:
  for path, now in new.items():
    was = old.get(path)
    advice = f"lower it with {now.struct} for {path}"
    if was is None:
      yield Difference(KIND, path, "not there", now.aval, advice)
    elif was.aval != now.aval:
      yield Difference(KIND, path, was.aval, now.aval, advice)
    elif was.where != now.where:
      yield Difference(KIND, path, was.sharding, now.sharding, advice)
  for path in old.keys() - new.keys():
    advice = f"lower it without {path}"
    yield Difference(KIND, path, old[path].aval, "not there", advice)


def _arguments(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, _Argument]]:
  """Each flattened argument by its path, which begins with its name."""
  tree_util = sys.modules["jax._src.tree_util"]
  names, renamed = parameters_of(fun), equinox.renamed_leaves(fun, args)
  by_position = ((names.name(index), value) for index, value in enumerate(args))
  for name, value in (*by_position, *sorted(kwargs.items())):
    leaves, _ = tree_util.tree_flatten_with_path(value)
    for keys, leaf in leaves:
      path = name + tree_util.keystr(keys)
      yield renamed.get(path, path), _argument(leaf)


def _argument(value: Any) -> _Argument:
  if not hasattr(value, "shape") or not hasattr(value, "dtype"):
    text = short_text(value)
    is_number = isinstance(value, (bool, int, float, complex))
    return _Argument(type(value).__name__ if is_number else text, None, "", text)
  shape, dtype = tuple(value.shape), value.dtype
  weak = " weakly typed" if getattr(value, "weak_type", False) else ""
  aval = f"{dtype}[{','.join(map(str, shape))}]{weak}"
  struct = f"{shape}, '{dtype}'"
  sharding = getattr(value, "sharding", None)
  sharding = getattr(sharding, "sharding", sharding)  # of a `Format`
  if sharding is None or not getattr(value, "_committed", True):
    return _Argument(aval, None, _UNSHARDED, f"jax.ShapeDtypeStruct({struct})")
  leaf = signatures.array_leaf((shape, dtype, False, True, sharding, None))
  placement = leaf.placement
  text = placement.text
  made = placement.code if placement.mesh else f"SingleDeviceSharding({text})"
  return _Argument(
      aval,
      (placement.where, placement.devices),
      text,
      f"jax.ShapeDtypeStruct({struct}, sharding={made})",
  )
