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
"""Counts what JAX traces, lowers and compiles, in a slow dispatch or outside one.

JAX's monitoring events count for the dispatch that runs in their thread. All
others are of ahead-of-time compilations or of JAX's own operations outside jit:
each is a `Compilation`, with the user's line. All of it may run in any thread.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.abc
import importlib.machinery
import inspect
import logging
import sys
import threading
import time
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from jaxlib import _fastpath_ahead as ahead
from jaxlib import _fastpath_locks as locks
from jaxlib import _fastpath_origin as origin
from jaxlib import _pjit
from jaxlib._fastpath_text import short_text

logger = logging.getLogger("jaxlib.pjit")

AHEAD_OF_TIME = "ahead of time"
OPERATION = "operation outside jit"
OTHER = "outside jit"

TRACED, LOWERED, COMPILED = "traced", "lowered", "compiled"
_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": TRACED,
    "/jax/core/compile/jaxpr_to_mlir_module_duration": LOWERED,
    "/jax/core/compile/backend_compile_duration": COMPILED,
}
_MONITORING = "jax._src.monitoring"
_MAX_PLACES = 512  # of operations whose earlier calls are remembered
_MAX_CALLS = 16  # of each

SAME = "nothing that this explanation compares differs from an earlier call"


@dataclasses.dataclass(frozen=True)
class Compilation:
  """A compilation that was not made by calling a jitted function of the user's.

  Attributes:
    function: the name of the function, or of JAX's operation.
    kind: `AHEAD_OF_TIME`, `OPERATION` or `OTHER`.
    called_from: `file:line (function)` of the user's frame.
    through: the same of the library that the user's frame called, or empty.
    seconds: how long it took; for an operation, including its run.
    traced, lowered, compiled: how often.
    reason: why an operation was made again at this line; None at the first.
    advice: what to do about it, if that can be said.
  """

  function: str
  kind: str
  called_from: str
  through: str
  seconds: float
  traced: int
  lowered: int
  compiled: int
  reason: str | None = None
  advice: str | None = None

  def __str__(self) -> str:
    made = [what for what in (TRACED, LOWERED, COMPILED) if getattr(self, what)]
    through = f" through {self.through}" if self.through else ""
    lines = [
        f"{self.function}, {self.kind}, {', '.join(made)} at"
        f" {self.called_from}{through} in {self.seconds * 1e3:.3f} ms"
    ]
    if self.reason is not None:
      lines.append(f"again, because: {self.reason}")
    if self.advice is not None:
      lines.append(f"to fix it: {self.advice}")
    return "\n  ".join(lines)


Listener = Callable[[Compilation], None]

_lock = locks.new()
_listeners: list[Listener] = []  # protected by `_lock`; none is called under it
_running = threading.local()


def add_listener(listener: Listener) -> None:
  """Calls `listener` with each compilation outside of a dispatch."""
  with _lock:
    _listeners.append(listener)
  if _MONITORING in sys.modules:
    listen_to_jax()
  elif not any(type(finder) is _WhenImported for finder in sys.meta_path):
    sys.meta_path.insert(0, _WhenImported())


def remove_listener(listener: Listener) -> None:
  """Undoes one `add_listener`."""
  with _lock:
    _listeners.remove(listener)


def _tell(compilation: Compilation) -> None:
  with _lock:
    listeners = list(_listeners)
  for listener in listeners:
    listener(compilation)


class _WhenImported(importlib.abc.MetaPathFinder):
  """Starts to listen when the program imports JAX, which we must not do early.

  The first dispatch would be too late: a program may compile ahead of time
  before it.
  """

  def find_spec(
      self, name: str, path: Any = None, target: Any = None
  ) -> importlib.machinery.ModuleSpec | None:
    if name != _MONITORING:
      return None
    sys.meta_path.remove(self)
    spec = importlib.machinery.PathFinder.find_spec(name, path, target)
    if spec is not None and spec.loader is not None:
      make = spec.loader.exec_module

      def make_and_listen(module: types.ModuleType) -> None:
        make(module)
        _listen_to(module)

      spec.loader.exec_module = make_and_listen
    return spec


def listen_to_jax() -> None:
  """Starts to count JAX's events, unless they are counted already."""
  _listen_to(sys.modules[_MONITORING])


def _listen_to(monitoring: types.ModuleType) -> None:
  if _count not in monitoring.get_event_duration_listeners():
    monitoring.register_event_duration_secs_listener(_count)
    _outlive_clearing(monitoring)


def _outlive_clearing(monitoring: types.ModuleType) -> None:
  """Makes `clear_event_listeners` keep our listener while it is needed."""
  clear = monitoring.clear_event_listeners
  if hasattr(clear, "_leaves_ours"):
    return

  @functools.wraps(clear)
  def clear_event_listeners() -> None:
    clear()
    if _listeners:
      _listen_to(monitoring)

  clear_event_listeners._leaves_ours = True
  for name in (_MONITORING, "jax.monitoring"):
    if getattr(sys.modules.get(name), "clear_event_listeners", None) is clear:
      sys.modules[name].clear_event_listeners = clear_event_listeners
  monitoring.clear_event_listeners = clear_event_listeners


def begin() -> dict[str, int]:
  """Counts the events of this thread until `end`, for one dispatch."""
  listen_to_jax()
  counts = {TRACED: 0, LOWERED: 0, COMPILED: 0}
  if not hasattr(_running, "counts"):
    _running.counts = []
  _running.counts.append(counts)
  return counts


def end() -> None:
  """Ends the last `begin` of this thread."""
  _running.counts.pop()


def _count(event: str, duration: float, **details: Any) -> None:
  what = _EVENTS.get(event)
  if what is None:
    return
  running = getattr(_running, "counts", None)
  if running:
    running[-1][what] += 1
  elif _listeners:
    try:
      _tell_of_phase(what, duration, details.get("fun_name", "?"))
    except Exception as error:  # which JAX would raise, out of the user's call
      if _pjit.strict():
        raise
      _warn_once(repr(error))


@functools.cache
def _warn_once(what: str) -> None:
  logger.warning("a compilation is left out of the explanations: %s", what)


def _tell_of_phase(what: str, seconds: float, jax_name: str) -> None:
  # Before 0.7 there are events of the functions that are traced in one, too.
  if not sys.modules["jax._src.core"].trace_state_clean():
    return
  kind, lowered = _beside_dispatches(what)
  if kind is None:
    return
  place = origin.caller()
  if lowered is not None and what == LOWERED:
    ahead.note(lowered)
  counts = {name: int(name == what) for name in (TRACED, LOWERED, COMPILED)}
  name = origin.without_jit(jax_name)
  _tell(Compilation(name, kind, *place[:2], seconds, **counts))


def _beside_dispatches(
    what: str,
) -> tuple[str | None, Mapping[str, Any] | None]:
  """What kind of compilation runs in this thread, and the locals of `lower`."""
  stages = sys.modules["jax._src.stages"].__file__
  is_ahead = False
  frame = sys._getframe(1)
  while frame is not None:
    code = frame.f_code
    if code.co_name == "jit_lower" and "jit_func" in code.co_varnames:
      return AHEAD_OF_TIME, frame.f_locals
    if code.co_filename == stages and code.co_name in ("lower", "compile"):
      is_ahead = True
    frame = frame.f_back
  if is_ahead:
    return AHEAD_OF_TIME, None
  # Tracing alone, as for `jax.eval_shape`, makes nothing.
  return (None if what == TRACED else OTHER), None


# What the calls of one operation from one line depended on, newest last.
# Protected by `_lock`.
_calls: collections.OrderedDict[Hashable, list[dict[str, str]]] = (
    collections.OrderedDict()
)


class Operation:
  """A dispatch of one of JAX's own functions, from `begin` on."""

  def __init__(
      self, cache_miss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
  ) -> None:
    self._cache_miss = cache_miss
    self._args, self._kwargs = args, kwargs
    self._counts = begin()
    self._start = time.perf_counter()

  def end(self) -> None:
    """Tells the listeners of the compilation, if there was one. Call it once."""
    seconds = time.perf_counter() - self._start
    end()
    if not self._counts[COMPILED] or not _listeners:
      return
    place = origin.caller()
    name = self._cache_miss.function_name
    call = self._described()
    with _lock:
      calls = _calls_at(name, place.site, self._cache_miss.fun)
      reason, advice = _why_again(calls, call)
      calls.append(call)
      del calls[:-_MAX_CALLS]
    _tell(
        Compilation(
            name, OPERATION, *place[:2], seconds, **self._counts, reason=reason,
            advice=advice,
        )
    )  # fmt: skip

  def _described(self) -> dict[str, str]:
    """What the operation depends on, by name, as short texts."""
    parameters = _parameters(self._cache_miss.fun)
    return {
        **dict(self._arguments()),
        **{name: _text(value) for name, value in parameters.items()},
    }

  def _arguments(self) -> Iterator[tuple[str, str]]:
    tree_util = sys.modules["jax._src.tree_util"]
    count = len(self._args)
    numbers = {
        number + count if number < 0 else number
        for number in self._cache_miss.static_argnums
    }
    for name, value, is_static in (
        *((f"argument {n}", v, n in numbers) for n, v in enumerate(self._args)),
        *(
            (name, value, name in self._cache_miss.static_argnames)
            for name, value in self._kwargs.items()
        ),
    ):
      if is_static:
        yield name, short_text(value)
        continue
      leaves = tree_util.tree_leaves(value)
      for number, leaf in enumerate(leaves):
        is_one = len(leaves) == 1
        yield name if is_one else f"{name}, leaf {number}", _dynamic(leaf)


def _calls_at(name: str, line: str, fun: Any) -> list[dict[str, str]]:
  # Several functions of JAX's may have one name.
  code = getattr(inspect.unwrap(fun), "__code__", None)
  key = name, line, code and (code.co_filename, code.co_firstlineno)
  calls = _calls.setdefault(key, [])
  _calls.move_to_end(key)
  if len(_calls) > _MAX_PLACES:
    _calls.popitem(last=False)
  return calls


def _parameters(fun: Any) -> Mapping[str, Any]:
  """An operation's parameters. JAX makes a function for each set of them."""
  fun = inspect.unwrap(fun)
  cells = getattr(fun, "__closure__", None) or ()
  names = fun.__code__.co_freevars if cells else ()
  held = {name: cell.cell_contents for name, cell in zip(names, cells)}
  found = held.get("params")
  return found if isinstance(found, Mapping) else {}


_A_FUNCTION = "a function: "


def _dynamic(value: Any) -> str:
  """The text of what a compilation depends on in an argument."""
  if hasattr(value, "aval"):
    weak = " weakly typed" if value.aval.weak_type else ""
    is_committed = getattr(value, "_committed", False)
    placed = f" on {_placement(value.sharding)}" if is_committed else ""
    return f"{value.aval.str_short()}{weak}{placed}"
  if hasattr(value, "dtype") and hasattr(value, "shape"):  # NumPy's
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"
  return type(value).__name__


def _text(value: Any) -> str:
  """The text of a parameter."""
  info = getattr(getattr(value, "jaxpr", value), "debug_info", None)
  if info is not None:
    return f"{_A_FUNCTION}{_short(info.func_src_info)}"
  if isinstance(value, tuple) and any(hasattr(v, "jaxpr") for v in value):
    return "; ".join(map(_text, value))
  return short_text(value)


def _placement(sharding: Any) -> str:
  spec = getattr(sharding, "spec", None)
  return short_text(sharding if spec is None else spec)


def _short(source: str) -> str:
  name, at, place = source.partition(" at ")
  return f"{name}{at}{origin.shown(place)}"


def _why_again(
    calls: list[dict[str, str]], call: dict[str, str]
) -> tuple[str | None, str | None]:
  """Why an operation was compiled again, and what to do."""
  if not calls:
    return None, None
  closest = min(reversed(calls), key=lambda old: _distance(old, call))
  changed = next(_changed(closest, call), None)
  if changed is not None:
    was, now = closest.get(changed, "none"), call.get(changed, "none")
    return f"{changed}: was {was}, now {now}", None
  made = next((t for t in call.values() if t.startswith(_A_FUNCTION)), None)
  if made is None:
    return SAME, None
  function = made.removeprefix(_A_FUNCTION).split(";")[0]
  return (
      f"{function} is another function in each call",
      f"define {function} once, outside the loop, or make the call inside a"
      " jitted function",
  )


def _changed(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
  return (key for key in {**new, **old} if old.get(key) != new.get(key))


def _distance(old: dict[str, str], new: dict[str, str]) -> int:
  return sum(1 for _ in _changed(old, new))
