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
"""The times of slow dispatches and compilations, for the page's time line."""

from __future__ import annotations

import heapq
import time
from typing import Any, NamedTuple

from jaxlib import _fastpath_locks as locks
from jaxlib._fastpath_report_rows import line_of, said_of

MAX_MARKS = 5000  # the longest are kept

FIRST = "first"  # a function's first dispatch
COMPILED = "compiled"  # a later one that compiled
SLOW = "slow"  # one that did not
BESIDE = "beside"  # a compilation outside jitted functions


class Mark(NamedTuple):
  """One slow dispatch or compilation. The times are in seconds."""

  seconds: float
  start: float  # since the time line's
  kind: str
  lane: str  # what is drawn in one line
  said: tuple[str, ...]


class Timeline:
  """Collects marks as they come, in any thread, and keeps no dispatch."""

  def __init__(self) -> None:
    self._lock = locks.new()
    self._start = time.perf_counter()
    self._marks: list[Mark] = []  # a heap
    self._lane_numbers: dict[str, set[int]] = {}
    self.left_out = 0

  def add(self, dispatch: Any) -> None:
    """Notes a dispatch that ended now."""
    lane = self._lane(dispatch)
    if dispatch.is_first:
      self._add(dispatch, FIRST, lane, ("first call",))
    else:
      kind = COMPILED if dispatch.compiled else SLOW
      self._add(dispatch, kind, lane, said_of(dispatch))

  def add_compilation(self, compilation: Any) -> None:
    """Notes a compilation that ended now."""
    why = [] if compilation.reason is None else [compilation.reason]
    why += [] if compilation.advice is None else [compilation.advice]
    said = f"{compilation.function}, {compilation.kind}", *why
    self._add(compilation, BESIDE, line_of(compilation), said)

  def marks(self) -> list[Mark]:
    """The marks that are kept, oldest first."""
    with self._lock:
      return sorted(self._marks, key=lambda mark: mark.start)

  def seconds(self) -> float:
    """How long the time line is, so far."""
    return time.perf_counter() - self._start

  def _lane(self, dispatch: Any) -> str:
    name = f"{dispatch.function} at {dispatch.defined_at}"
    with self._lock:
      # Those that a factory makes have one name and place.
      numbers = self._lane_numbers.setdefault(name, set())
      numbers.add(dispatch.lineage)
      number = sorted(numbers).index(dispatch.lineage)
    return f"{name} ({number + 1})" if number else name

  def _add(
      self, told: Any, kind: str, lane: str, said: tuple[str, ...]
  ) -> None:
    start = self.seconds() - told.seconds
    said = *said, f"called at {line_of(told)}"
    mark = Mark(told.seconds, max(start, 0.0), kind, lane, said)
    with self._lock:
      if len(self._marks) < MAX_MARKS:
        heapq.heappush(self._marks, mark)
      else:
        heapq.heappushpop(self._marks, mark)
        self.left_out += 1
