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
"""Explains slow dispatches: what of a call differs from the calls before it.

`miss_explanation.cc` calls `begin` before a slow dispatch and `end` after it,
while explaining is on. All of it may run in any thread.
"""

from __future__ import annotations

import array
import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxlib import _fastpath_ahead as ahead
from jaxlib import _fastpath_compilations as compilations
from jaxlib import _fastpath_dispatch as dispatches
from jaxlib import _fastpath_origin as origin
from jaxlib import _fastpath_signature as signatures
from jaxlib import _fastpath_telemetry as telemetry
from jaxlib._fastpath_compilations import Operation
from jaxlib._fastpath_difference import Difference, Structure
from jaxlib._fastpath_dispatch import Dispatch
from jaxlib._fastpath_history import History, history_of, lock
from jaxlib._fastpath_signature import Path, Signature, short_text

# JAX and its C++ are looked up, never imported: importing them first would read
# a program's settings before the program has made them.

logger = logging.getLogger("jaxlib.pjit")

_MAX_STRUCTURE_TEXT = 2000  # characters of a structure's that are kept


class _Begun(NamedTuple):
  """A dispatch that goes on."""

  cache_miss: Any
  args: tuple[Any, ...]
  kwargs: dict[str, Any]
  history: History
  signature: Signature | None
  reason: str | None  # known from the arguments
  is_first: bool
  events: dict[str, int]
  annotation: Any
  start: float


# Protected by the histories' lock, under which no listener is called.
_listeners: list[Callable[[Dispatch], None]] = []
@functools.cache
def _array_type() -> type:
  return sys.modules["jaxlib._jax"].ArrayImpl


@functools.cache
def _configs() -> tuple[tuple[str, ...], tuple[Any, ...]]:
  names, states = zip(*signatures.config_states())
  return names, states


class _NoSignature(Exception):
  """The call has none, which is why it never takes the fastpath."""


class _Uninteresting(Exception):
  """The call is part of a trace, from which it has no fastpath."""


def _is_static(cache_miss: Any, index: int, count: int) -> bool:
  return (
      index in cache_miss.static_argnums
      or index - count in cache_miss.static_argnums
  )


def _arguments(
    cache_miss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, Any, bool]]:
  """Each argument as JAX writes its path, and whether it is static."""
  for index, value in enumerate(args):
    yield f"args[{index}]", value, _is_static(cache_miss, index, len(args))
  for name, value in sorted(kwargs.items()):
    yield f"kwargs[{name!r}]", value, name in cache_miss.static_argnames


def _paths(registry: Any, prefix: str, argument: Any) -> Iterator[Path]:
  """The path of each leaf that the dispatch registry makes of an argument."""
  default = sys.modules["jaxlib._jax.pytree"].default_registry()
  for path, leaf in default.flatten_with_path(argument)[0]:
    text = prefix + "".join(map(str, path))
    for base in registry.flatten(leaf)[0]:
      yield Path(text, base is not leaf)


def _leaf_numbers(history: History, leaves: list[Any]) -> list[int]:
  """What is compared of flattened arguments, in numbers.

  Raises:
    _NoSignature, _Uninteresting: there is one with nothing to compare.
  """
  array_type = _array_type()
  known: dict[Any, int] = {}  # most leaves of a call are like another one
  layouts = []  # kept, so that each has an `id` of its own
  numbers = []
  for leaf in leaves:
    if type(leaf) is not array_type:
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
    raise _NoSignature(dispatches.UNCOMMITTED)
  return history.number_of(
      signatures.compared_by_value(compared),
      lambda: signatures.array_leaf(compared),
  )


def _other_number(history: History, value: Any) -> int:
  leaf = signatures.other_leaf(value)
  if leaf is not None:
    return history.number_of(leaf, lambda: leaf)
  if isinstance(value, sys.modules["jax._src.core"].Tracer):
    raise _Uninteresting
  is_ref = type(value).__name__ in ("Ref", "MutableArray")
  raise _NoSignature(
      dispatches.MUTABLE_REFS if is_ref else dispatches.NO_ARRAY_ARGUMENT
  )


def _signature(
    history: History,
    cache_miss: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Signature:
  """The call's signature.

  Raises:
    _NoSignature, _Uninteresting: it has none.
  """
  statics, leaves, treedefs = [], [], []
  for path, value, is_static in _arguments(cache_miss, args, kwargs):
    if is_static:
      key = signatures.static_key(value)
      history.note_static(key, functools.partial(short_text, value))
      statics.append((path, key))
      continue
    flat, treedef = cache_miss.registry.flatten(value)
    treedefs.append((path, treedef))
    leaves += flat
  numbers = array.array("I", _leaf_numbers(history, leaves)).tobytes()
  structure = signatures.structure_key(treedefs)

  def made() -> Structure:
    paths = tuple(_all_paths(cache_miss, args, kwargs))
    return Structure(paths, _text(treedefs))

  history.note_structure(structure, made)
  configs = tuple(map(signatures.config_value, _configs()[1]))
  return Signature(structure, tuple(statics), numbers, configs)


def _text(treedefs: list[tuple[str, Any]]) -> str:
  """What the treedefs are printed as."""
  try:
    text = ", ".join(str(treedef) for _, treedef in treedefs)
  except Exception:  # a user's repr may raise
    return ""
  return signatures.without_addresses(text)[:_MAX_STRUCTURE_TEXT]


def _all_paths(
    cache_miss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Path]:
  for prefix, value, is_static in _arguments(cache_miss, args, kwargs):
    if not is_static:
      yield from _paths(cache_miss.registry, prefix, value)


def _history(
    cache_miss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> History:
  """The history of the user's function, which a library may have wrapped."""
  history = history_of(cache_miss)
  if history.definition is not None:
    return history
  if cache_miss.fun is None:
    definition, owner = origin.AHEAD_OF_TIME, None
  else:
    arguments = _arguments(cache_miss, args, kwargs)
    statics = [value for _, value, is_static in arguments if is_static]
    definition, owner = origin.definition_of(cache_miss.fun, statics)
  if owner is not None:
    history = history_of(cache_miss, owner)
  if history.definition is None:
    history.define(cache_miss, definition)
  return history


def begin(
    cache_miss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Begun | Operation | None:
  """Notes what a dispatch starts from. None if there is nothing to explain."""
  history = _history(cache_miss, args, kwargs)
  # JAX's own functions, each operation outside jit among them, are called with
  # whatever comes; their dispatches are nobody's misses.
  if origin.is_below(history.definition.package):
    is_traced = not sys.modules["jax._src.core"].trace_state_clean()
    return None if is_traced else Operation(cache_miss, args, kwargs)
  signature, reason = None, None
  is_first = history.begin(cache_miss.slow_dispatches)
  try:
    if not sys.modules["jax._src.core"].trace_state_clean():
      raise _Uninteresting
    signature = _signature(history, cache_miss, args, kwargs)
  except _NoSignature as no_signature:
    reason = str(no_signature)
  except _Uninteresting:
    history.give_up()
    return None
  except BaseException:
    history.give_up()
    raise
  return _Begun(
      cache_miss,
      args,
      kwargs,
      history,
      signature,
      reason,
      is_first,
      compilations.begin(),
      telemetry.begin_annotation(_name(cache_miss)),
      time.perf_counter(),
  )


def end(begun: _Begun | Operation | None, dispatched: Any) -> None:
  """Tells those who listen what the dispatch was, unless it raised."""
  if begun is None:
    return
  if type(begun) is Operation:
    begun.end()
    return
  seconds = time.perf_counter() - begun.start
  compilations.end()
  if dispatched is None:
    telemetry.end_annotation(begun.annotation, "it raised")
    begun.history.give_up(raised=begun.signature)
    return
  reason = begun.reason
  if reason is None and dispatched[1] is None:
    reason = _reason(begun, dispatched)
  if reason is None and _raised_before(begun):
    reason = dispatches.RAISED
  caller = origin.caller()
  unlike_ahead = _unlike_ahead(begun)
  with lock:
    is_news = reason not in begun.history.reasons
    dispatch = _explained(begun, reason, caller, seconds, unlike_ahead)
    listeners = list(_listeners)
  telemetry.end_annotation(begun.annotation, dispatch.cause)
  telemetry.record(dispatch.function, dispatch.cause, seconds)
  for listener in listeners:
    listener(dispatch)
  flag = sys.modules["jax._src.config"].explain_cache_misses
  # A call that was traced JAX explains by itself, and its tests count the logs.
  if dispatch.is_miss and is_news and not dispatch.traced and flag.value:
    logger.warning("%s", dispatch)


def _unlike_ahead(begun: _Begun) -> tuple[Difference, ...]:
  """How a first call that compiled differs from what was compiled for it."""
  if not begun.is_first or not begun.events[compilations.COMPILED]:
    return ()
  return ahead.differences(begun.cache_miss.fun, begun.args, begun.kwargs)


def _raised_before(begun: _Begun) -> bool:
  """Whether jaxlib has an entry that a call which raised left unfilled."""
  history, signature = begun.history, begun.signature
  # The call after it is traced anew, since it was not to its end. Only from
  # then on is an entry missing that should be there.
  is_again = signature in history.signatures or not begun.events["traced"]
  return signature in history.raised and is_again


def _explained(
    begun: _Begun,
    reason: str | None,
    caller: origin.Caller,
    seconds: float,
    unlike_ahead: tuple[Difference, ...],
) -> Dispatch:
  history = begun.history
  found = unlike_ahead
  if reason is None and not begun.is_first:
    found = history.differences(begun.signature, _configs()[0])
  history.end(begun.signature)
  if reason is not None and not begun.events["traced"]:
    history.reasons.add(reason)
  return Dispatch(
      _name(begun.cache_miss),
      history.function_number,
      history.definition.line,
      caller.line,
      seconds,
      **begun.events,
      entry=history.seen,
      is_first=begun.is_first and not unlike_ahead,
      differences=found,
      reason=reason,
      dropped=history.dropped,
      through=caller.through,
      lineage=history.lineage,
  )


def _name(cache_miss: Any) -> str:
  return origin.name_of(cache_miss.fun, cache_miss.function_name)


def _reason(begun: _Begun, dispatched: Any) -> str:
  """Why JAX gave no fastpath data, as far as it can be told."""
  if len(dispatched) > 2 and dispatched[2]:
    return dispatches.PROFILE_GUIDED
  leaves = begun.cache_miss.registry.flatten(dispatched[0])[0]
  if not all(type(leaf) is _array_type() for leaf in leaves):
    return dispatches.NO_ARRAY_RESULT
  try:
    effects = _effects(begun)
  except Exception:  # a release that has another way to them
    return dispatches.NOT_OFFERED
  if any(type(effect).__mro__[1].__name__ == "RefEffect" for effect in effects):
    return dispatches.MUTABLE_REFS
  return dispatches.EFFECTS if effects else dispatches.NOT_OFFERED


def _effects(begun: _Begun) -> Any:
  """The effects of the function's jaxpr, which JAX has in its cache."""
  inner = inspect.unwrap(begun.cache_miss.__wrapped__)
  info = inspect.getclosurevars(inner).nonlocals
  pjit = sys.modules["jax._src.pjit"]
  params, _ = pjit._infer_params(
      info["fun"], info["jit_info"], begun.args, begun.kwargs
  )
  return params.params["jaxpr"].effects


def add_listener(listener: Callable[[Dispatch], None]) -> None:
  """Has a function told of each slow dispatch, in the thread that made it."""
  with lock:
    _listeners.append(listener)


def remove_listener(listener: Callable[[Dispatch], None]) -> None:
  with lock:
    _listeners.remove(listener)
