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
"""Short texts of users' objects."""

from __future__ import annotations

import re
from typing import Any

MAX_TEXT = 120  # characters of a user's object that are shown

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def short_text(value: Any) -> str:
  """`repr` on one line, cut at `MAX_TEXT`; the type's if it raises."""
  try:
    text = repr(value)
  except Exception:  # a user's repr may raise anything
    return f"<{type(value).__name__}>"
  text = " ".join(without_addresses(text[: 2 * MAX_TEXT]).split())
  return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def without_addresses(text: str) -> str:
  """The text without addresses, in which equal objects may differ."""
  return _ADDRESS.sub("", text)
