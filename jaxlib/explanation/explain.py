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
"""Explains slow dispatches: how a call differs from the calls before it.

`miss_explanation.cc` calls `begin` before a slow dispatch and `end` after it,
while explaining is on. All of it may run in any thread.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxlib import _fastpath_ahead as ahead
from jaxlib import _fastpath_call as calls
from jaxlib import _fastpath_compilations as compilations
from jaxlib import _fastpath_dispatch as dispatches
from jaxlib import _fastpath_equinox as equinox
from jaxlib import _fastpath_origin as origin
from jaxlib import _fastpath_signature as signatures
from jaxlib import _fastpath_telemetry as telemetry
from jaxlib._fastpath_compilations import Operation
from jaxlib._fastpath_difference import GONE, Difference, FedBack
from jaxlib._fastpath_dispatch import Dispatch
from jaxlib._fastpath_history import History, history_of, lock
from jaxlib._fastpath_signature import Signature

# JAX and its C++ are looked up, never imported: importing them first would read
# a program's settings before the program has made them.

logger = logging.getLogger("jaxlib.pjit")


class _Begun(NamedTuple):
  """A dispatch that is running."""

  cache_miss: Any
  args: tuple[Any, ...]
  kwargs: dict[str, Any]
  history: History
  signature: Signature | None
  leaves: list[Any]
  reason: str | None  # known from the arguments
  is_first: bool
  events: dict[str, int]
  annotation: Any
  start: float


# Protected by the histories' lock, under which no listener is called.
_listeners: list[Callable[[Dispatch], None]] = []


def _history(
    cache_miss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> History:
  """The history of the user's function, which a library may have wrapped."""
  history = history_of(cache_miss)
  if history.definition is not None:
    return history
  if cache_miss.fun is None:
    definition, owner = ahead.definition_of(cache_miss.function_name), None
  else:
    arguments = calls.arguments_of(cache_miss, args, kwargs)
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
  """Notes the start of a dispatch. None if there is nothing to explain."""
  history = _history(cache_miss, args, kwargs)
  # JAX's own functions, such as operations outside jit, are called with whatever
  # comes, so their dispatches are not the user's misses.
  if origin.is_below(history.definition.package):
    is_traced = not sys.modules["jax._src.core"].trace_state_clean()
    return None if is_traced else Operation(cache_miss, args, kwargs)
  signature, leaves, reason = None, [], None
  is_first = history.begin(cache_miss.slow_dispatches)
  try:
    if not sys.modules["jax._src.core"].trace_state_clean():
      raise calls.Uninteresting
    signature, leaves = calls.signature_of(history, cache_miss, args, kwargs)
  except calls.NoSignature as no_signature:
    reason = str(no_signature)
  except calls.Uninteresting:
    history.give_up()
    return None
  except BaseException:
    history.give_up()
    raise
  try:
    annotation = telemetry.begin_annotation(_name(cache_miss))
    events = compilations.begin()  # last: `end` has to follow
  except BaseException:
    history.give_up()
    raise
  return _Begun(
      cache_miss,
      args,
      kwargs,
      history,
      signature,
      leaves,
      reason,
      is_first,
      events,
      annotation,
      time.perf_counter(),
  )


def end(begun: _Begun | Operation | None, dispatched: Any) -> None:
  """Tells the listeners of the dispatch, unless it raised."""
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

  @functools.cache
  def outputs() -> list[Any]:
    return begun.cache_miss.registry.flatten(dispatched[0])[0]

  found = _unlike_ahead(begun)
  if reason is None and not begun.is_first:
    found = _differences(begun, outputs)
  if not (found and found[0].kind == GONE):  # else noted when it was new
    begun.history.note_outputs(outputs())
  with lock:
    is_news = reason not in begun.history.reasons
    dispatch = _explained(begun, reason, found, caller, seconds)
    listeners = list(_listeners)
  telemetry.end_annotation(begun.annotation, dispatch.cause)
  telemetry.record(dispatch.function, dispatch.cause, seconds)
  for listener in listeners:
    listener(dispatch)
  if dispatch.is_miss and is_news:
    _log(dispatch)


def _unlike_ahead(begun: _Begun) -> tuple[Difference, ...]:
  """How a first call that compiled differs from the ahead-of-time compilation."""
  if not begun.is_first or not begun.events[compilations.COMPILED]:
    return ()
  return ahead.differences(begun.cache_miss.fun, begun.args, begun.kwargs)


def _raised_before(begun: _Begun) -> bool:
  """Whether a call that raised left an entry of jaxlib's unfilled."""
  history, signature = begun.history, begun.signature
  # The call after it is traced, since it was not to its end, and so is the one
  # after a cleared cache.
  return signature in history.raised and (
      not begun.events["traced"]
      or history.is_jitted_anew(signature, begun.cache_miss)
  )


def _differences(
    begun: _Begun, outputs: Callable[[], list[Any]]
) -> tuple[Difference, ...]:
  history, signature = begun.history, begun.signature

  @functools.cache
  def own() -> dict[int, int]:
    return history.own_outputs()

  @functools.cache
  def returned() -> list[int]:
    try:
      return calls.leaf_numbers(history, outputs())
    except (calls.NoSignature, calls.Uninteresting):
      return []

  def fed_back(index: int, number: int) -> FedBack | None:
    output = own().get(id(begun.leaves[index]))
    if output is None:
      return None
    return FedBack(output < len(returned()) and returned()[output] == number)

  def strictly() -> Iterator[Difference]:
    if not history.may_collide(signature):
      return
    cache_miss, fun = begun.cache_miss, begun.cache_miss.fun
    names = calls.parameters_for(history, cache_miss)
    arguments = list(
        calls.arguments_of(cache_miss, begun.args, begun.kwargs, names)
    )
    structure = calls.structure_for(cache_miss, arguments, begun.args, [])
    statics = {
        signatures.static_key(value): equinox.described_static(fun, name, value)
        for name, value, is_static in arguments
        if is_static
    }
    yield from history.strict_differences(signature, structure, statics)

  return history.differences(signature, calls.configs()[0], fed_back, strictly)


def _explained(
    begun: _Begun,
    reason: str | None,
    found: tuple[Difference, ...],
    caller: origin.Caller,
    seconds: float,
) -> Dispatch:
  history = begun.history
  is_new = bool(found) and found[0].kind != GONE
  history.end(begun.signature, begun.cache_miss, is_new)
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
      is_first=begun.is_first and not found,
      differences=found,
      reason=reason,
      dropped=history.dropped,
      through=caller.through,
      lineage=history.lineage,
  )


def _name(cache_miss: Any) -> str:
  return origin.name_of(cache_miss.fun, cache_miss.function_name)


def _log(dispatch: Dispatch) -> None:
  """Logs a miss while JAX's flag is on.

  JAX itself warns of a call that was traced, and its tests count the warnings.
  So ours has the level INFO then, but is shown wherever warnings are.
  """
  flag = sys.modules["jax._src.config"].explain_cache_misses
  if not flag.value or not logger.isEnabledFor(logging.WARNING):
    return
  if not dispatch.traced:
    logger.warning("%s", dispatch)
    return
  record = logger.makeRecord(
      logger.name, logging.INFO, __file__, 0, "%s", (dispatch,), None
  )
  if logger.hasHandlers():
    logger.handle(record)
  else:
    _to_stderr.handle(record)


_to_stderr = logging._StderrHandler(logging.INFO)  # as where nothing is set up


def _reason(begun: _Begun, dispatched: Any) -> str:
  """Why JAX gave no fastpath data, as far as that is known."""
  if len(dispatched) > 2 and dispatched[2]:
    return dispatches.PROFILE_GUIDED
  leaves = begun.cache_miss.registry.flatten(dispatched[0])[0]
  if not all(type(leaf) is calls.array_type() for leaf in leaves):
    return dispatches.NO_ARRAY_RESULT
  try:
    effects = _effects(begun)
  except Exception:  # a release that has another way to them
    return dispatches.NOT_OFFERED
  if any(type(effect).__mro__[1].__name__ == "RefEffect" for effect in effects):
    return dispatches.MUTABLE_REFS
  return dispatches.EFFECTS if effects else dispatches.NOT_OFFERED


def _effects(begun: _Begun) -> Any:
  """The effects of the function's jaxpr, from JAX's cache."""
  inner = inspect.unwrap(begun.cache_miss.__wrapped__)
  info = inspect.getclosurevars(inner).nonlocals
  pjit = sys.modules["jax._src.pjit"]
  params, _ = pjit._infer_params(
      info["fun"], info["jit_info"], begun.args, begun.kwargs
  )
  return params.params["jaxpr"].effects


def add_listener(listener: Callable[[Dispatch], None]) -> None:
  """Calls `listener` with each slow dispatch, in the thread that made it."""
  with lock:
    _listeners.append(listener)


def remove_listener(listener: Callable[[Dispatch], None]) -> None:
  with lock:
    _listeners.remove(listener)
