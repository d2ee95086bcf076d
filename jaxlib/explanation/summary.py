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
"""Sums up many dispatches: each message once, with a count."""

from __future__ import annotations

from collections.abc import Iterable

from jaxlib._fastpath_dispatch import Dispatch

_MAX_MESSAGES = 10


def summary(dispatches: Iterable[Dispatch]) -> str:
  """The text of the first dispatch of each kind, with a count if there are more."""
  alike: dict[object, list[Dispatch]] = {}
  for dispatch in dispatches:
    differences = tuple((d.kind, d.path) for d in dispatch.differences)
    key = dispatch.lineage, dispatch.called_from, dispatch.reason, differences
    alike.setdefault(key, []).append(dispatch)
  lines = [_said(found) for found in list(alike.values())[:_MAX_MESSAGES]]
  if len(alike) > _MAX_MESSAGES:
    lines.append(f"and {len(alike) - _MAX_MESSAGES} more kinds of misses")
  return "\n".join(lines)


def _said(alike: list[Dispatch]) -> str:
  first, *others = alike
  if not others:
    return str(first)
  seconds = sum(dispatch.seconds for dispatch in alike)
  return f"{first}\n  {len(alike):,} times, {seconds * 1e3:,.1f} ms in all"
