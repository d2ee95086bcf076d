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
"""Adds up a program's slow dispatches and other compilations into rows.

They are added up as they come, in any thread, and none is kept. Each form of the
report shows these rows.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable
from typing import Any, NamedTuple

from jaxlib import _fastpath_locks as locks

JIT_ONCE = "if they are one, call jax.jit once, outside the loop"
_ANEW = "jitted again: {} functions from one place"
_MAX_CAUSES = 100  # of one row that are told apart


class Cause(NamedTuple):
  """What several slow dispatches or compilations have in common."""

  times: int
  ms: float
  worst_call: str  # where the costliest was called from
  said: tuple[str, ...]  # lines, of the costliest


class Row(NamedTuple):
  """The slow dispatches of one function, added up."""

  function: str
  defined_at: str
  functions: int  # more than one if it was jitted again
  slow_dispatches: int
  misses: int  # of each function: its dispatches after its first
  compiled: int
  entries: int  # of the function that has most
  first_ms: float  # in the first dispatch of all
  lost_ms: float  # in all others
  causes: tuple[Cause, ...]  # of what is lost, the costliest first


class Beside(NamedTuple):
  """What JAX compiled at one of the user's lines outside jitted functions."""

  called_from: str
  kind: str
  functions: tuple[str, ...]
  compiled: int
  ms: float
  causes: tuple[Cause, ...]  # of what was made again, the costliest first


class _Sum:
  """Those with one cause, so far."""

  def __init__(self) -> None:
    self.times, self.seconds, self.worst_s = 0, 0.0, -1.0
    self.worst_call, self.said = "", ()

  def add(self, told: Any, said: tuple[str, ...]) -> None:
    self.times += 1
    self.seconds += told.seconds
    if told.seconds > self.worst_s:
      self.worst_s, self.said = told.seconds, said
      self.worst_call = line_of(told)

  def cause(self, functions: int) -> Cause:
    said = tuple(line.format(functions) for line in self.said)
    return Cause(self.times, 1e3 * self.seconds, self.worst_call, said)


def line_of(told: Any) -> str:
  """Where a dispatch or a compilation was called from, and through what."""
  through = f" through {told.through}" if told.through else ""
  return f"{told.called_from}{through}"


def _escaped(text: str) -> str:
  return text.replace("{", "{{").replace("}", "}}")


class _Causes:
  """The sums of a row, by cause."""

  def __init__(self) -> None:
    self._sums: dict[Hashable, _Sum] = {}

  def add(self, key: Hashable, told: Any, said: tuple[str, ...]) -> None:
    if key not in self._sums and len(self._sums) == _MAX_CAUSES:
      key = None  # of all that are too many
    self._sums.setdefault(key, _Sum()).add(told, said)

  def of(self, functions: int = 1) -> tuple[Cause, ...]:
    found = (each.cause(functions) for each in self._sums.values())
    return tuple(sorted(found, key=lambda cause: -cause.ms))


def said_of(dispatch: Any) -> tuple[str, ...]:
  """The lines that say why it missed, and what to do."""
  return tuple(map(str, dispatch.because))


def _cause_of(dispatch: Any) -> Hashable:
  """Equal for dispatches whose explanations differ in values only."""
  paths = tuple((each.kind, each.path) for each in dispatch.differences)
  return dispatch.reason, paths


@dataclasses.dataclass
class _Function:
  """One function's sums, so far."""

  name: str
  defined_at: str
  numbers: set[int] = dataclasses.field(default_factory=set)
  slow_dispatches: int = 0
  misses: int = 0
  compiled: int = 0
  entries: int = 0
  first_s: float = 0.0
  lost_s: float = 0.0
  causes: _Causes = dataclasses.field(default_factory=_Causes)

  def add(self, dispatch: Any) -> None:
    is_first_of_all = not self.numbers
    is_of_another = dispatch.function_number not in self.numbers
    self.numbers.add(dispatch.function_number)
    self.slow_dispatches += 1
    self.misses += dispatch.is_miss
    self.compiled += dispatch.compiled
    self.entries = max(self.entries, dispatch.entry)
    if dispatch.is_miss:
      said = tuple(map(_escaped, said_of(dispatch)))
      self._lose(_cause_of(dispatch), dispatch, said)
    elif is_first_of_all or not is_of_another:  # in two threads at once
      self.first_s += dispatch.seconds
    else:
      self._lose(_ANEW, dispatch, (_ANEW, f"to fix it: {JIT_ONCE}"))

  def _lose(self, key: Hashable, dispatch: Any, said: tuple[str, ...]) -> None:
    self.lost_s += dispatch.seconds
    self.causes.add(key, dispatch, said)

  def row(self) -> Row:
    return Row(
        self.name,
        self.defined_at,
        len(self.numbers),
        self.slow_dispatches,
        self.misses,
        self.compiled,
        self.entries,
        1e3 * self.first_s,
        1e3 * self.lost_s,
        self.causes.of(len(self.numbers)),
    )


@dataclasses.dataclass
class _Line:
  """The sums of one of the user's lines, so far."""

  functions: dict[str, None] = dataclasses.field(default_factory=dict)
  compiled: int = 0
  seconds: float = 0.0
  causes: _Causes = dataclasses.field(default_factory=_Causes)

  def add(self, compilation: Any) -> None:
    self.functions[compilation.function] = None
    self.compiled += compilation.compiled
    self.seconds += compilation.seconds
    if compilation.reason is not None:
      said = [f"{compilation.function} again: {compilation.reason}"]
      if compilation.advice is not None:
        said.append(f"to fix it: {compilation.advice}")
      # A thousand shapes have one cause.
      what = compilation.reason.partition(": was ")[0]
      key = compilation.function, what
      self.causes.add(key, compilation, tuple(map(_escaped, said)))

  def row(self, called_from: str, kind: str) -> Beside:
    return Beside(
        called_from,
        kind,
        tuple(self.functions),
        self.compiled,
        1e3 * self.seconds,
        self.causes.of(),
    )


class Report:
  """Adds up dispatches and compilations, of any thread, and keeps none."""

  def __init__(self) -> None:
    self._lock = locks.new()
    self._functions: dict[Hashable, _Function] = {}
    self._lines: dict[tuple[str, str], _Line] = collections.defaultdict(_Line)

  def add(self, dispatch: Any) -> None:
    key = dispatch.function, dispatch.defined_at, dispatch.lineage
    with self._lock:
      function = self._functions.get(key)
      if function is None:
        function = self._functions[key] = _Function(*key[:2])
      function.add(dispatch)

  def add_compilation(self, compilation: Any) -> None:
    key = line_of(compilation), compilation.kind
    with self._lock:
      self._lines[key].add(compilation)

  def rows(self) -> list[Row]:
    """A row for each function, the costliest first."""
    with self._lock:
      found = [function.row() for function in self._functions.values()]
    return sorted(found, key=lambda row: (-row.lost_ms, -row.first_ms))

  def beside(self) -> list[Beside]:
    """A row for each of the user's lines, the costliest first."""
    with self._lock:
      found = [line.row(*key) for key, line in self._lines.items()]
    return sorted(found, key=lambda row: -row.ms)
