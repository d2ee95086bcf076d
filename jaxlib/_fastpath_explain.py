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
while explaining is on. Each function's signatures are kept by value, the last
`MAX_SIGNATURES` of them. All of it may run in any thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxlib import _fastpath_signature as signatures
from jaxlib._fastpath_signature import Difference, Leaf, Signature, Static

# JAX and its C++ are looked up, never imported: importing them first would read
# a program's settings before the program has made them.

MAX_SIGNATURES = 64  # of one function
MAX_SHOWN = 5  # differences in a log record

logger = logging.getLogger("jaxlib.pjit")

NOT_OFFERED = "JAX did not offer a fastpath for it"
UNCOMMITTED = "an argument is an uncommitted array on several devices"
NO_ARRAY_ARGUMENT = "an argument is no array"
NO_ARRAY_RESULT = "a result is no array"
EFFECTS = "it has host callbacks or other effects"
MUTABLE_REFS = "it reads or writes mutable refs"
PROFILE_GUIDED = "it is to be compiled again, guided by a profile"
REASON_ADVICE = {
    UNCOMMITTED: "commit it with jax.device_put(x, sharding)",
    NO_ARRAY_ARGUMENT: "pass an array, or make the argument static",
    EFFECTS: "leave the callback out of the step where speed matters",
}


@dataclasses.dataclass(frozen=True)
class Dispatch:
  """One slow dispatch.

  Attributes:
    function: the name of the jitted function.
    defined_at: `file:line`, or `ahead of time`.
    called_from: `file:line (function)`, the user's frame and not JAX's.
    seconds: from the call of Python to its return.
    traced, lowered, compiled: how often, by JAX's monitoring events.
    entry: which of the function's signatures this is, from 1.
    is_first: whether it is the function's first; no miss then.
    differences: from the closest earlier signature, if that is what it missed
      for.
    reason: why the function never takes the fastpath, if that is why.
    dropped: signatures of the function that are no longer remembered.
  """

  function: str
  defined_at: str
  called_from: str
  seconds: float
  traced: int
  lowered: int
  compiled: int
  entry: int
  is_first: bool
  differences: tuple[Difference, ...]
  reason: str | None
  dropped: int

  @property
  def is_miss(self) -> bool:
    return not self.is_first

  @property
  def cause(self) -> str:
    """The chief reason, in a few words."""
    if self.reason is not None:
      return self.reason
    return self.differences[0].kind if self.differences else "first call"

  @property
  def advice(self) -> str | None:
    if self.reason is not None:
      return REASON_ADVICE.get(self.reason)
    return self.differences[0].advice if self.differences else None

  def __str__(self) -> str:
    return "\n  ".join(_lines(self))


def _lines(dispatch: Dispatch) -> Iterator[str]:
  work = ", ".join(
      f"{'' if count else 'not '}{what}"
      for what, count in (
          ("traced", dispatch.traced),
          ("lowered", dispatch.lowered),
          ("compiled", dispatch.compiled),
      )
  )
  yield (
      f"FASTPATH CACHE MISS at {dispatch.called_from} costing "
      f"{dispatch.seconds * 1e3:.3f} ms ({work}) because:"
  )
  function = f"for {dispatch.function} defined at {dispatch.defined_at}"
  if dispatch.reason is not None:
    yield f"{function}, which never takes the fastpath: {dispatch.reason}"
  else:
    yield f"{function}, entry {dispatch.entry}"
  for difference in dispatch.differences[:MAX_SHOWN]:
    yield str(difference)
  if len(dispatch.differences) > MAX_SHOWN:
    yield f"and {len(dispatch.differences) - MAX_SHOWN} more differences"
  if dispatch.dropped:
    yield (
        f"the last {MAX_SIGNATURES} signatures were compared, "
        f"{dispatch.dropped} older ones are forgotten"
    )
  if dispatch.advice:
    yield f"to mend it: {dispatch.advice}"


class _History:
  """The signatures of one function, oldest first."""

  def __init__(self, fun: Any) -> None:
    self.defined_at = _defined_at(fun)
    # JAX's own functions, each operation outside jit among them, are called
    # with whatever comes; their dispatches are nobody's misses.
    self.is_of_user = fun is None or _is_user_file(self.defined_at)
    self.signatures: dict[Signature, None] = {}
    self.numbers: dict[Any, int] = {}  # of the leaves, by what makes each
    self.leaves: dict[int, Leaf] = {}
    self.next_number = itertools.count()
    self.running = 0  # dispatches, whose signatures are not added yet
    self.paths: dict[int, tuple[str, ...]] = {}  # by structure
    self.texts: dict[int, int] = {}
    self.seen = 0
    self.reasons: set[str] = set()

  def number_of(self, key: Any, leaf: Callable[[], Leaf]) -> int:
    number = self.numbers.get(key)
    if number is None:
      made = leaf()
      with _lock:
        number = self.numbers.setdefault(key, next(self.next_number))
        self.leaves.setdefault(number, made)
    return number

  def add(self, signature: Signature) -> None:
    # The newest come last, a signature that came again among them.
    if signature not in self.signatures:
      self.seen += 1
    self.signatures.pop(signature, None)
    self.signatures[signature] = None
    if len(self.signatures) > MAX_SIGNATURES:
      del self.signatures[next(iter(self.signatures))]
      if self.running == 0:
        self._forget()

  def _forget(self) -> None:
    """Drops what only signatures that are gone had."""
    structures = {signature.structure for signature in self.signatures}
    self.paths = {s: p for s, p in self.paths.items() if s in structures}
    self.texts = {s: t for s, t in self.texts.items() if s in structures}
    kept = {number for s in self.signatures for number in s.leaves}
    self.leaves = {n: leaf for n, leaf in self.leaves.items() if n in kept}
    self.numbers = {key: n for key, n in self.numbers.items() if n in kept}

  @property
  def dropped(self) -> int:
    return self.seen - len(self.signatures)


class _Begun(NamedTuple):
  """A dispatch that goes on."""

  cache_miss: Any
  args: tuple[Any, ...]
  kwargs: dict[str, Any]
  history: _History
  signature: Signature | None
  reason: str | None  # known from the arguments
  is_first: bool
  events: dict[str, int]
  start: float


# Protects the histories and the listeners. No code of the user's runs under it:
# not a flatten, a hash, a repr or a listener.
_lock = threading.RLock()
_histories: dict[tuple[int, int], tuple[weakref.ref, _History]] = {}
_listeners: list[Callable[[Dispatch], None]] = []
_running = threading.local()

_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "traced",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowered",
    "/jax/core/compile/backend_compile_duration": "compiled",
}


@functools.cache
def _listen_to_jax() -> None:
  """Counts JAX's compilation events for the dispatch that runs in a thread."""

  def count(event: str, duration: float, **kwargs: Any) -> None:
    del duration, kwargs
    running = getattr(_running, "dispatches", None)
    if running and event in _EVENTS:
      running[-1][_EVENTS[event]] += 1

  sys.modules["jax._src.monitoring"].register_event_duration_secs_listener(
      count
  )


@functools.cache
def _array_type() -> type:
  return sys.modules["jaxlib._jax"].ArrayImpl


@functools.cache
def _configs() -> tuple[tuple[str, ...], tuple[Any, ...]]:
  names, states = zip(*signatures.config_states())
  return names, states


def _history_of(cache_miss: Any) -> _History:
  fun = cache_miss.fun
  key = (id(fun), hash(cache_miss.global_cache_key))
  try:
    weakref.ref(fun)
  except TypeError:  # None, or without room for a weak reference
    fun, key = cache_miss, (id(cache_miss), 0)
  known = _histories.get(key)
  if known is not None and known[0]() is fun:
    return known[1]
  history = _History(cache_miss.fun)
  ref = weakref.ref(fun, lambda _: _histories.pop(key, None))
  with _lock:
    known = _histories.get(key)
    if known is not None and known[0]() is fun:
      return known[1]
    _histories[key] = (ref, history)
  return history


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


def _paths(registry: Any, prefix: str, argument: Any) -> Iterator[str]:
  """The path of each leaf that the dispatch registry makes of an argument."""
  default = sys.modules["jaxlib._jax.pytree"].default_registry()
  for path, leaf in default.flatten_with_path(argument)[0]:
    text = prefix + "".join(map(str, path))
    for _ in registry.flatten(leaf)[0]:
      yield text


class _Uninteresting(Exception):
  """The call is part of a trace, or of a function of JAX's own."""


def _leaf_number(history: _History, value: Any) -> int | str:
  """What is compared of an argument, or why there is nothing to compare."""
  if type(value) is _array_type():
    key = signatures.array_key(value)
    if not value._committed and len(value.sharding._device_assignment) > 1:
      return UNCOMMITTED
    return history.number_of(key, lambda: signatures.leaf_of_array(value, key))
  leaf = signatures.leaf_of(value)
  if leaf is not None:
    return history.number_of(leaf, lambda: leaf)
  core = sys.modules.get("jax._src.core")
  if core is not None and isinstance(value, core.Tracer):
    raise _Uninteresting
  is_ref = type(value).__name__ in ("Ref", "MutableArray")
  return MUTABLE_REFS if is_ref else NO_ARRAY_ARGUMENT


def _signature(
    history: _History,
    cache_miss: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Signature | str:
  """The call's signature, or why it has none."""
  statics, leaves, treedefs = [], [], []
  for path, value, is_static in _arguments(cache_miss, args, kwargs):
    if is_static:
      key = (type(value).__name__, hash(value))
      statics.append(Static(path, key, signatures.short_text(value)))
      continue
    flat, treedef = cache_miss.registry.flatten(value)
    treedefs.append((path, treedef))
    for item in flat:
      number = _leaf_number(history, item)
      if isinstance(number, str):
        return number
      leaves.append(number)
  structure = hash(tuple(treedefs))
  if structure not in history.paths:
    _note_structure(history, structure, cache_miss, args, kwargs, treedefs)
  configs = tuple(map(signatures.config_value, _configs()[1]))
  signature = Signature(structure, tuple(statics), tuple(leaves), configs)
  if signature in history.signatures:
    # The hash of a treedef leaves out what its nodes are made with. The text,
    # which has it, takes too long to make for each call.
    text = _text(treedefs)
    if text != history.texts[structure]:
      structure = hash((structure, text))
      _note_structure(history, structure, cache_miss, args, kwargs, treedefs)
      signature = signature._replace(structure=structure)
  return signature


def _text(treedefs: list[tuple[str, Any]]) -> int:
  """A hash of what the treedefs are printed as."""
  with contextlib.suppress(Exception):  # a user's repr may raise
    return hash(str(treedefs))
  return 0


def _note_structure(
    history: _History,
    structure: int,
    cache_miss: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    treedefs: list[tuple[str, Any]],
) -> None:
  history.texts[structure] = _text(treedefs)
  history.paths[structure] = tuple(
      text
      for path, value, is_static in _arguments(cache_miss, args, kwargs)
      if not is_static
      for text in _paths(cache_miss.registry, path, value)
  )


def begin(
    cache_miss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Begun | None:
  """Notes what a dispatch starts from. None if there is nothing to explain."""
  _listen_to_jax()
  history = _history_of(cache_miss)
  if not history.is_of_user:
    return None
  with _lock:
    history.running += 1
  try:
    found = _signature(history, cache_miss, args, kwargs)
  except BaseException as error:
    with _lock:
      history.running -= 1
    if isinstance(error, _Uninteresting):
      return None
    raise
  signature, reason = (None, found) if isinstance(found, str) else (found, None)
  events = dict.fromkeys(_EVENTS.values(), 0)
  if not hasattr(_running, "dispatches"):
    _running.dispatches = []
  _running.dispatches.append(events)
  return _Begun(
      cache_miss,
      args,
      kwargs,
      history,
      signature,
      reason,
      # Those before may have come while nothing was explained.
      not history.signatures and cache_miss.slow_dispatches == 0,
      events,
      time.perf_counter(),
  )


def end(begun: _Begun | None, dispatched: Any) -> None:
  """Tells those who listen what the dispatch was, unless it raised."""
  if begun is None:
    return
  seconds = time.perf_counter() - begun.start
  _running.dispatches.pop()
  if dispatched is None:
    with _lock:
      begun.history.running -= 1
    return
  reason = begun.reason
  if reason is None and dispatched[1] is None:
    reason = _reason(begun, dispatched)
  called_from = _called_from()
  with _lock:
    dispatch, is_news = _explained(begun, reason, called_from, seconds)
    listeners = list(_listeners)
  for listener in listeners:
    listener(dispatch)
  flag = sys.modules["jax._src.config"].explain_cache_misses
  # A call that was traced JAX explains by itself, and its tests count the logs.
  if dispatch.is_miss and is_news and not dispatch.traced and flag.value:
    logger.warning("%s", dispatch)


def _explained(
    begun: _Begun, reason: str | None, called_from: str, seconds: float
) -> tuple[Dispatch, bool]:
  """The dispatch, and whether it says what was not said before."""
  history = begun.history
  is_first = begun.is_first
  history.running -= 1
  found: tuple[Difference, ...] = ()
  if reason is None and not is_first:
    found = _differences(history, begun.signature)
  if begun.signature is not None:
    history.add(begun.signature)
  is_news = reason not in history.reasons
  if reason is not None:
    if not begun.events["traced"]:
      history.reasons.add(reason)
    # Each call of such a function is slow, its first too.
    is_first = False
  dispatch = Dispatch(
      begun.cache_miss.function_name,
      history.defined_at,
      called_from,
      seconds,
      **begun.events,
      entry=history.seen,
      is_first=is_first,
      differences=found,
      reason=reason,
      dropped=history.dropped,
  )
  return dispatch, is_news


def _differences(
    history: _History, signature: Signature | None
) -> tuple[Difference, ...]:
  if signature is None:
    return (signatures.whole_call(signatures.NOT_TOLD),)
  if not history.signatures:
    return (signatures.whole_call(signatures.NOT_NOTED),)
  if signature in history.signatures:
    return (signatures.whole_call(signatures.GONE),)
  closest = min(
      reversed(history.signatures),
      key=lambda old: signatures.distance(old, signature),
  )
  found = tuple(
      signatures.differences(
          closest, signature, history.paths, history.leaves, _configs()[0]
      )
  )
  # Most configuration values are no part of the cache's key: one is the cause
  # only if nothing else is.
  others = tuple(d for d in found if d.kind != signatures.CONFIG)
  return others or found or (signatures.whole_call(signatures.NOT_TOLD),)


def _reason(begun: _Begun, dispatched: Any) -> str:
  """Why JAX gave no fastpath data, as far as it can be told."""
  if len(dispatched) > 2 and dispatched[2]:
    return PROFILE_GUIDED
  leaves = begun.cache_miss.registry.flatten(dispatched[0])[0]
  if not all(type(leaf) is _array_type() for leaf in leaves):
    return NO_ARRAY_RESULT
  try:
    effects = _effects(begun)
  except Exception:  # a release that has another way to them
    return NOT_OFFERED
  if any(type(effect).__mro__[1].__name__ == "RefEffect" for effect in effects):
    return MUTABLE_REFS
  return EFFECTS if effects else NOT_OFFERED


def _effects(begun: _Begun) -> Any:
  """The effects of the function's jaxpr, which JAX has in its cache."""
  inner = inspect.unwrap(begun.cache_miss.__wrapped__)
  info = inspect.getclosurevars(inner).nonlocals
  pjit = sys.modules["jax._src.pjit"]
  params, _ = pjit._infer_params(
      info["fun"], info["jit_info"], begun.args, begun.kwargs
  )
  return params.params["jaxpr"].effects


def _defined_at(fun: Any) -> str:
  if fun is None:
    return "ahead of time"
  while isinstance(fun, functools.partial):
    fun = fun.func
  fun = inspect.unwrap(fun)
  code = getattr(fun, "__code__", None)
  if code is None:
    code = getattr(type(fun).__dict__.get("__call__"), "__code__", None)
  return f"{code.co_filename}:{code.co_firstlineno}" if code else "?"


def _is_user_file(name: str) -> bool:
  info = sys.modules["jax._src.source_info_util"]
  return name != __file__ and info.is_user_filename(name)


def _called_from() -> str:
  frame = sys._getframe()
  while frame is not None:
    code = frame.f_code
    if _is_user_file(code.co_filename):
      return f"{code.co_filename}:{frame.f_lineno} ({code.co_name})"
    frame = frame.f_back
  return "?"


def add_listener(listener: Callable[[Dispatch], None]) -> None:
  """Has a function told of each slow dispatch, in the thread that made it."""
  with _lock:
    _listeners.append(listener)


def remove_listener(listener: Callable[[Dispatch], None]) -> None:
  with _lock:
    _listeners.remove(listener)
