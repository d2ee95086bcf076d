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
"""The report as one self-contained HTML page."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxlib._fastpath_report_rows import Beside, Cause, Row
from jaxlib._fastpath_report_timeline import Timeline

_TEMPLATE = "_fastpath_report_page.html"


def page(
    title: str,
    rows: Sequence[Row],
    beside: Sequence[Beside],
    timeline: Timeline,
) -> str:
  """The page's text."""
  template = Path(__file__).with_name(_TEMPLATE).read_text("utf-8")
  parts = {
      "TITLE": html.escape(title),
      "FUNCTIONS": "".join(map(_function, rows)),
      "COMPILATIONS": "".join(map(_compilation, beside)),
      # Nothing in it may end the element that it is in.
      "DATA": json.dumps(_data(timeline)).replace("<", "\\u003c"),
  }
  for name, part in parts.items():
    template = template.replace(f"<!--{name}-->", part)
  return template


def _data(timeline: Timeline) -> dict[str, Any]:
  """The data for the page's script, with each text and lane once."""
  lanes: dict[str, int] = {}
  texts: dict[tuple[str, ...], int] = {}
  marks = [
      (
          round(mark.start, 6),
          round(mark.seconds, 6),
          mark.kind,
          lanes.setdefault(mark.lane, len(lanes)),
          texts.setdefault(mark.said, len(texts)),
      )
      for mark in timeline.marks()
  ]
  return {
      "seconds": timeline.seconds(),
      "leftOut": timeline.left_out,
      "lanes": list(lanes),
      "texts": ["\n".join(text) for text in texts],
      "marks": marks,
  }


def _function(row: Row) -> str:
  numbers = (
      f"{row.first_ms:,.1f}",
      f"{row.lost_ms:,.1f}",
      f"{row.slow_dispatches:,}",
      f"{row.compiled:,}",
      f"{row.entries:,}",
  )
  name = f"{row.function} at {row.defined_at}"
  return _row(numbers, name, row.causes)


def _compilation(row: Beside) -> str:
  name = f"{', '.join(row.functions)} ({row.kind}) from {row.called_from}"
  return _row((f"{row.ms:,.1f}", f"{row.compiled:,}"), name, row.causes)


def _row(numbers: Sequence[str], name: str, causes: Sequence[Cause]) -> str:
  cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
  why = "".join(_causes(causes))
  return f"<tr>{cells}<td>{html.escape(name)}{why}</td></tr>\n"


def _causes(causes: Sequence[Cause]) -> Iterator[str]:
  for cause in causes:
    times = f"{cause.times:,} time{'s' * (cause.times != 1)}"
    head = f"{times}, {cause.ms:,.1f} ms, the longest from {cause.worst_call}"
    said = "<br>".join(map(html.escape, cause.said))
    yield f'<div class="cause">{html.escape(head)}<br>{said}</div>'
