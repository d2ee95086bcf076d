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
"""Makes a signature, which is what the fastpath compares, from a call's arguments."""

from __future__ import annotations

import array
import functools
import sys
from collections.abc import Iterator
from typing import Any

from jaxlib import _fastpath_dispatch as dispatches
from jaxlib import _fastpath_equinox as equinox
from jaxlib import _fastpath_origin as origin
from jaxlib import _fastpath_signature as signatures
from jaxlib._fastpath_history import History
from jaxlib._fastpath_signature import Signature
from jaxlib._fastpath_structure import (
    NO_NAMES,
    Parameters,
    Structure,
    parameters_of,
    structure_of,
)
from jaxlib._fastpath_text import without_addresses

_MAX_STRUCTURE_TEXT = 2000  # characters of a structure's that are kept


@functools.cache
def array_type() -> type:
  return sys.modules["jaxlib._jax"].ArrayImpl


@functools.cache
def configs() -> tuple[tuple[str, ...], tuple[Any, ...]]:
  names, states = zip(*signatures.config_states())
  return names, states


class NoSignature(Exception):
  """The call has no signature, and so never takes the fastpath."""


class Uninteresting(Exception):
  """The call is part of a trace, where there is no fastpath."""


def _is_static(cache_miss: Any, index: int, count: int) -> bool:
  return (
      index in cache_miss.static_argnums
      or index - count in cache_miss.static_argnums
  )


def arguments_of(
    cache_miss: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    parameters: Parameters = NO_NAMES,
) -> Iterator[tuple[str, Any, bool]]:
  """Each argument under its parameter's name, and whether it is static."""
  for index, value in enumerate(args):
    is_static = _is_static(cache_miss, index, len(args))
    yield parameters.name(index), value, is_static
  for name, value in sorted(kwargs.items()):
    yield name, value, name in cache_miss.static_argnames


def parameters_for(history: History, cache_miss: Any) -> Parameters:
  if history.parameters is None:
    history.parameters = parameters_of(cache_miss.fun)
    history.library = origin.library_of(cache_miss.fun)
  return history.parameters


def leaf_numbers(history: History, leaves: list[Any]) -> list[int]:
  """Numbers that stand for what is compared of each flattened argument.

  Raises:
    NoSignature, Uninteresting: an argument has nothing to compare.
  """
  plain = array_type()
  known: dict[Any, int] = {}  # most leaves of a call are like another one
  layouts = []  # kept, so that each has an `id` of its own
  numbers = []
  for leaf in leaves:
    if type(leaf) is not plain:
      numbers.append(_other_number(history, leaf))
      continue
    aval, layout = leaf.aval, None
    if not leaf.is_deleted():  # to ask such an array crashes jaxlib
      try:  # noqa: SIM105 - `suppress` would cost more than all of this
        layout = leaf._pjrt_layout
      except Exception:  # not all backends have layouts
        pass
    key = (
        aval.shape,
        aval.dtype,
        aval.weak_type,
        leaf._committed,
        leaf._sharding,
        id(layout),
    )
    number = known.get(key)
    if number is None:
      number = known[key] = _array_number(history, (*key[:-1], layout))
      layouts.append(layout)
    numbers.append(number)
  return numbers


def _array_number(history: History, compared: signatures.Compared) -> int:
  committed, sharding = compared[3:5]
  if not committed and len(sharding._device_assignment) > 1:
    raise NoSignature(dispatches.UNCOMMITTED)
  return history.number_of(
      signatures.compared_by_value(compared),
      lambda: signatures.array_leaf(compared),
  )


def _other_number(history: History, value: Any) -> int:
  leaf = signatures.other_leaf(value)
  if leaf is not None:
    return history.number_of(leaf, lambda: leaf)
  if isinstance(value, sys.modules["jax._src.core"].Tracer):
    raise Uninteresting
  is_ref = type(value).__name__ in ("Ref", "MutableArray")
  raise NoSignature(
      dispatches.MUTABLE_REFS if is_ref else dispatches.NO_ARRAY_ARGUMENT
  )


def signature_of(
    history: History,
    cache_miss: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Signature, list[Any]]:
  """The call's signature, and its flattened arguments.

  Raises:
    NoSignature, Uninteresting: the call has no signature.
  """
  statics, leaves, treedefs = [], [], []
  names = parameters_for(history, cache_miss)
  arguments = list(arguments_of(cache_miss, args, kwargs, names))
  for index, (name, value, is_static) in enumerate(arguments):
    # One may be passed by name and by position, which is not one signature.
    is_by_position = index < len(args)
    if is_static:
      key = signatures.static_key(value)
      described = functools.partial(
          equinox.described_static, cache_miss.fun, name, value
      )
      history.note_static(key, described)
      statics.append((name, is_by_position, key))
      continue
    flat, treedef = cache_miss.registry.flatten(value)
    treedefs.append((name, is_by_position, treedef))
    leaves += flat
  numbers = array.array("I", leaf_numbers(history, leaves)).tobytes()
  structure = signatures.structure_key(treedefs)
  history.note_structure(
      structure,
      lambda: structure_for(cache_miss, arguments, args, treedefs),
  )
  settings = tuple(map(signatures.config_value, configs()[1]))
  signature = Signature(structure, tuple(statics), numbers, settings)
  return signature, leaves


def structure_for(
    cache_miss: Any,
    arguments: list[tuple[str, Any, bool]],
    args: tuple[Any, ...],
    treedefs: signatures.Treedefs,
) -> Structure:
  by_name = arguments[len(args) :]
  return structure_of(
      cache_miss.registry,
      [(name, value) for name, value, is_static in arguments if not is_static],
      frozenset(name for name, _, is_static in by_name if not is_static),
      equinox.renamed_leaves(cache_miss.fun, args),
      _text(treedefs),
      signatures.may_collide(treedefs),
  )


def _text(treedefs: signatures.Treedefs) -> str:
  """The text of the treedefs."""
  try:
    text = ", ".join(str(treedef) for *_, treedef in treedefs)
  except Exception:  # a user's repr may raise
    return ""
  return without_addresses(text)[:_MAX_STRUCTURE_TEXT]
