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
"""A slow dispatch, with its explanation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from jaxlib._fastpath_difference import Difference
from jaxlib._fastpath_history import MAX_SIGNATURES

MAX_SHOWN = 5  # differences in a log record

NEVER = "never takes the fastpath"
NOT_OFFERED = "JAX did not offer a fastpath for it"
UNCOMMITTED = "an argument is an uncommitted array on several devices"
NO_ARRAY_ARGUMENT = "an argument is not an array"
NO_ARRAY_RESULT = "a result is not an array"
EFFECTS = "it has host callbacks or other effects"
MUTABLE_REFS = "it reads or writes mutable refs"
RAISED = "an earlier call like it raised, and its entry was never filled"
PROFILE_GUIDED = "it is to be compiled again, guided by a profile"
REASON_ADVICE = {
    RAISED: "call clear_cache() of the jitted function after an error",
    UNCOMMITTED: "commit it with jax.device_put(x, sharding)",
    NO_ARRAY_ARGUMENT: "pass an array, or make the argument static",
    EFFECTS: "leave the callback out of the step where speed matters",
}


@dataclasses.dataclass(frozen=True)
class Dispatch:
  """One slow dispatch.

  Attributes:
    function: the name of the jitted function.
    function_number: differs between jitted functions of one name and place.
    defined_at: `file:line`, or `ahead of time`.
    called_from: `file:line (function)` of the user's frame.
    through: the same of the library that the user's frame called, or empty.
    lineage: tells functions apart, but not those of one place that are made one
      after the other, each when the one before is gone.
    seconds: how long JAX's Python ran.
    traced, lowered, compiled: how often, by JAX's monitoring events.
    entry: which of the function's signatures this is, from 1.
    is_first: whether it is the function's first, which is no miss.
    differences: from the closest earlier signature, if that is what it missed
      for.
    reason: why the function never takes the fastpath, if that is why.
    dropped: signatures of the function that are no longer remembered.
  """

  function: str
  function_number: int
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
  through: str = ""
  lineage: int = 0

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

  @property
  def because(self) -> list[str]:
    """Why the dispatch was slow, and what to do about it, in lines."""
    return _because(self)

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
  what, why = "FASTPATH CACHE MISS", " because:"
  if dispatch.is_first:
    what, why = "FIRST DISPATCH", ""
  through = f" through {dispatch.through}" if dispatch.through else ""
  yield (
      f"{what} at {dispatch.called_from}{through} costing "
      f"{dispatch.seconds * 1e3:.3f} ms ({work}){why}"
  )
  function = f"for {dispatch.function} defined at {dispatch.defined_at}"
  if dispatch.reason is not None:
    yield f"{function}, which {NEVER}: {dispatch.reason}"
  else:
    yield f"{function}, entry {dispatch.entry}"
  yield from _because(dispatch)[dispatch.reason is not None :]


def _because(dispatch: Dispatch) -> list[str]:
  lines = []
  if dispatch.reason is not None:
    lines.append(f"{NEVER}: {dispatch.reason}")
  for difference in dispatch.differences[:MAX_SHOWN]:
    lines.append(str(difference))
    if difference.advice:
      own = "it is this function's own output; " * difference.is_fed_back
      lines.append(f"  to fix it: {own}{difference.advice}")
  if len(dispatch.differences) > MAX_SHOWN:
    lines.append(f"and {len(dispatch.differences) - MAX_SHOWN} more differences")
  if dispatch.dropped:
    lines.append(
        f"the last {MAX_SIGNATURES} signatures were compared, "
        f"{dispatch.dropped} older ones are forgotten"
    )
  if dispatch.reason in REASON_ADVICE:
    lines.append(f"to fix it: {REASON_ADVICE[dispatch.reason]}")
  return lines
