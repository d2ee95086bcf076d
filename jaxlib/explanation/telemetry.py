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
"""Reports slow dispatches to JAX's monitoring and profiler while they are explained.

`jax.monitoring`, and so whatever exports its events, gets a duration event
`EVENT` with `fun_name` and `reason`. A running profile gets an annotation around
the dispatch, with `function` and `reason`.
"""

from __future__ import annotations

import re
import sys
from typing import Any

EVENT = "/jaxlib/pjit/slow_dispatch_duration"
ANNOTATION = "slow dispatch"


def record(function: str, reason: str, seconds: float) -> None:
  """Records the event for the current listeners."""
  monitoring = sys.modules["jax._src.monitoring"]
  monitoring.record_event_duration_secs(
      EVENT, seconds, fun_name=function, reason=reason
  )


def begin_annotation(function: str) -> Any:
  """Begins the annotation in this thread. None if no profile is running."""
  kind = sys.modules["jax._src.profiler"].TraceAnnotation
  if not kind.is_enabled():
    return None
  annotation = kind(ANNOTATION, function=_encodable(function))
  annotation.__enter__()
  return annotation


def end_annotation(annotation: Any, reason: str) -> None:
  """Ends the annotation, and adds the reason, which is known only now."""
  if annotation is not None:
    annotation.set_metadata(reason=_encodable(reason))
    annotation.__exit__(None, None, None)


def _encodable(text: str) -> str:
  """The text without the separators of the profiler's encoding."""
  return re.sub("[,#]", ";", text)
