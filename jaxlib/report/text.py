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
"""The report as text: a table, and under it what to do about each function.

A line that is wider than the terminal is folded between words. A path counts as
one word. Piped output is not folded.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

from jaxlib._fastpath_report_rows import Beside, Cause, Row

TITLE = "Slow dispatches and compilations"
MAX_ROWS = 12  # of each table
MAX_CAUSES = 3  # of each function
_MAX_NAMES = 5  # of operations at one line
_SPACE_IN_A_PATH = "\N{NO-BREAK SPACE}"


def width_of(stream: TextIO) -> int | None:
  """How wide a line may be. None if the output is not a terminal."""
  try:
    return os.get_terminal_size(stream.fileno()).columns
  except (OSError, ValueError):  # no terminal; no file at all
    return None


def text(rows: Sequence[Row], beside: Sequence[Beside], width: int | None) -> str:
  """The whole report, ending in a newline."""
  lines = [title(rows, beside), *_functions(rows), *_beside(beside)]
  folded = (_folded(line, width) for line in lines)
  return "".join(f"{line}\n" for line in folded)


def title(rows: Sequence[Row], beside: Sequence[Beside]) -> str:
  """A line that sums up the report."""
  slow = sum(row.slow_dispatches for row in rows)
  compiled = sum(row.compiled for row in beside)
  found = []
  if rows:
    found.append(f"{slow:,} slow of {count(len(rows), 'function')}")
  if beside:
    found.append(f"{count(compiled, 'compilation')} outside jitted functions")
  return f"{TITLE}: {'; '.join(found) or 'none'}"


def count(number: int, what: str) -> str:
  """A count with its noun, such as `2 slow dispatches`."""
  return f"{number:,} {what}{'s' * (number != 1)}"


def _functions(rows: Sequence[Row]) -> Iterator[str]:
  if not rows:
    return
  yield ""
  yield "first, ms  lost, ms   slow  compiled  entries  function"
  for row in rows[:MAX_ROWS]:
    numbers = (
        f"{row.first_ms:9.1f} {row.lost_ms:9.1f} {row.slow_dispatches:6d}"
        f" {row.compiled:9d} {row.entries:8d}"
    )
    yield f"{numbers}  {row.function} at {_path(row.defined_at)}"
  yield from _rest([(row.slow_dispatches, row.lost_ms) for row in rows])
  for row in rows[:MAX_ROWS]:
    if row.causes:
      yield ""
      yield f"{row.function} at {_path(row.defined_at)}"
      yield from _causes(row.causes)


def _rest(figures: Sequence[tuple[int, float]]) -> Iterator[str]:
  rest = figures[MAX_ROWS:]
  if rest:
    times, ms = map(sum, zip(*rest))
    yield f"and {len(rest):,} more, {count(times, 'time')}, {ms:,.1f} ms"


def _causes(causes: Sequence[Cause]) -> Iterator[str]:
  for cause in causes[:MAX_CAUSES]:
    yield (
        f"  {count(cause.times, 'time')}, {cause.ms:,.1f} ms, the longest from"
        f" {_path(cause.worst_call)}"
    )
    yield from (f"    {line}" for line in cause.said)
  rest = causes[MAX_CAUSES:]
  if rest:
    times = sum(cause.times for cause in rest)
    ms = sum(cause.ms for cause in rest)
    yield f"  {count(times, 'time')}, {ms:,.1f} ms, for other reasons"


def _beside(rows: Sequence[Beside]) -> Iterator[str]:
  if not rows:
    return
  yield ""
  yield "       ms  compiled  outside jitted functions"
  for row in rows[:MAX_ROWS]:
    functions = ", ".join(row.functions[:_MAX_NAMES])
    if len(row.functions) > _MAX_NAMES:
      functions += f" and {len(row.functions) - _MAX_NAMES} more"
    yield (
        f"{row.ms:9.1f} {row.compiled:9d}  {functions} ({row.kind}) from"
        f" {_path(row.called_from)}"
    )
  yield from _rest([(row.compiled, row.ms) for row in rows])
  for row in rows[:MAX_ROWS]:
    if row.causes:
      yield ""
      yield from _causes(row.causes)


def _path(text: str) -> str:
  """A text with paths, which may be folded around ` through ` only."""
  text = text.replace(" ", _SPACE_IN_A_PATH)
  through = f"{_SPACE_IN_A_PATH}through{_SPACE_IN_A_PATH}"
  return text.replace(through, " through ")


def _folded(line: str, width: int | None) -> str:
  if width is not None and len(line) > width:
    indent = len(line) - len(line.lstrip())
    # Numbers come first in a table's row.
    further = " " * (indent + 2 if indent < 5 else 4)
    line = textwrap.fill(
        line.lstrip(),
        max(width, 20),
        initial_indent=" " * indent,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
  return line.replace(_SPACE_IN_A_PATH, " ")
