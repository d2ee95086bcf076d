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
"""Finds where two values differ: in which part, and in which part of that."""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib._fastpath_value import Value, leaf


def is_same(old: Value, new: Value, is_strict: bool) -> bool:
  """Whether two values are equal: in every part if strict, else by hash."""
  if old.type != new.type:
    return False
  if (not old.parts and not new.parts) or not (old.is_opened or is_strict):
    # Unequal values may have one hash, and be told apart by their text alone.
    is_alike = not is_strict or old.is_by_identity or old.text == new.text
    return old.token == new.token and is_alike
  return old.parts.keys() == new.parts.keys() and all(
      is_same(part, new.parts[label], is_strict)
      for label, part in old.parts.items()
  )


Found = tuple[str, "Value | None", "Value | None"]  # path, was, now


def differing(
    path: str, old: Value, new: Value, is_strict: bool = False
) -> Iterator[Found]:
  """Each pair of parts that differ, with its path."""
  if is_same(old, new, is_strict):
    return
  found: list[Found] = []
  if old.type == new.type:
    gone, added = old.parts.keys() - new.parts, new.parts.keys() - old.parts
    is_renamed = len(gone) == len(added) == 1 and {*gone, *added} <= _keys(
        old, new
    )
    if is_renamed:
      keys = (
          leaf("dict key", f"dict key {each.pop()[1:-1]}")
          for each in (gone, added)
      )
      return (yield path, *keys)
    for label in dict.fromkeys((*old.parts, *new.parts)):
      was, now = old.parts.get(label), new.parts.get(label)
      if was is None or now is None:
        found.append((path + label, was, now))
      else:
        found += differing(path + label, was, now, is_strict)
  if not found:
    yield path, old, new
    return
  record = _record(found)
  if record is None:
    yield from found
  elif record == path:
    yield path, old, new
  else:
    yield record, *found[0][1:]


def _record(found: list[Found]) -> str | None:
  """The path of a record all of whose fields were made again, or None.

  The user has a name for the record, and not for its fields.
  """
  records = {path.rpartition(".")[0] for path, _, _ in found}
  is_one = len(found) > 1 and len(records) == 1
  return records.pop() if is_one and all(map(_is_made_anew, found)) else None


def _keys(*values: Value) -> set[str]:
  """The labels that are keys of a dict."""
  return {
      label
      for value in values
      if value.type_name.lower().endswith("dict")
      for label in value.parts
      if label.startswith("[")
  }


def _is_made_anew(found: Found) -> bool:
  path, was, now = found
  is_field = path.rpartition("]")[2].rpartition(".")[1] == "."
  return is_field and bool(
      was and now and was.is_by_identity and now.is_by_identity
  )
