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
"""Describes static arguments and pytree metadata, so that two can be compared.

A value is described once, part by part, so that a later explanation can name the
part that differs. A description keeps no value alive. Descriptions are not
compared by their texts.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from jaxlib._fastpath_text import MAX_TEXT, short_text


class Where(enum.Enum):
  """The part of a call that a value is in."""

  STATIC = enum.auto()  # a static argument
  LEAF = enum.auto()  # of a pytree, though it is not an array
  METADATA = enum.auto()  # of a pytree's node


class Value(NamedTuple):
  """The description of a value.

  Attributes:
    type: stands for the type.
    type_name: the type's name, as messages show it.
    token: equal for equal values, as far as that is known.
    shown: the value's text; empty if the text is made of the parts.
    parts: descriptions by label, such as ".epoch" or "[0]", as paths write it.
    is_by_identity: whether the value equals nothing but itself.
    is_opened: whether equality depends on the parts and not on the token.
    where: the part of a call that the value is in.
    file: the file of a function that is compared by identity.
    type_file: the file of the type of a value that is compared by identity.
  """

  type: Any
  type_name: str
  token: Any
  shown: str
  parts: Mapping[str, Value]
  is_by_identity: bool = False
  is_opened: bool = False
  where: Where = Where.STATIC
  file: str = ""
  type_file: str = ""

  @property
  def is_node(self) -> bool:
    """Whether it is a pytree's container, which has no text of its own."""
    return isinstance(self.type, str) and self.token is None

  @property
  def text(self) -> str:
    """The text on one line, cut at `MAX_TEXT` characters."""
    text = self.shown or _text_of_parts(self)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


class Numbers:
  """Numbers that stand for objects. No number is given out twice."""

  def __init__(self) -> None:
    self._numbers: dict[int, tuple[weakref.ref, int]] = {}
    self._next = itertools.count()

  def of(self, value: Any) -> Any:
    known = self._numbers.get(id(value))
    if known is not None and known[0]() is value:
      return known[1]
    key, number = id(value), next(self._next)
    try:
      ref = weakref.ref(value, lambda _: self._numbers.pop(key, None))
    except TypeError:  # without room for a weak reference
      return "id", key
    self._numbers[key] = ref, number
    return number


numbers = Numbers()

_MAX_PARTS = 20_000  # of one value
_MAX_DEPTH = 24
_MAX_KEPT = 2000  # characters of a text that are compared
_SIMPLE = (type(None), bool, int, float, complex, str, bytes)


def described(value: Any) -> Value:
  """The description of a value. Its `hash` and `repr` may run."""
  return _described(value, itertools.count(), 0)


def leaf(kind: str, text: str) -> Value:
  """The description of a pytree's leaf, whose value is not compared."""
  return Value(kind, text, kind, text, {})


def tree(type_name: str, parts: Mapping[str, Value]) -> Value:
  """The description of a container, which is compared by its parts."""
  return Value(type_name, type_name, None, "", parts, is_opened=True)


# How to describe values of certain types, by the type's name: a function that
# returns the parts, or one that returns the whole description.
special_parts: dict[tuple[str, str], Callable[[Any], Mapping[str, Any]]] = {}
special: dict[str, Callable[..., Value]] = {}


def _described(value: Any, count: Iterator[int], depth: int) -> Value:
  kind = type(value)
  key, name = numbers.of(kind), kind.__name__
  if kind in _SIMPLE:
    return _simple(value, key, name)
  if next(count) > _MAX_PARTS or depth > _MAX_DEPTH:
    return Value(key, name, _hash(value), f"<{name}>", {})
  if name == "PyTreeDef":
    return special[name](value)
  if _is_partitioned(value):
    return special["partitioned"](*value)
  try:
    opened = _parts(value)
  except Exception:  # a user's attribute may raise
    opened = None
  if opened is not None:
    parts, decides = opened
    inner = {k: _described(v, count, depth + 1) for k, v in parts.items()}
    token = None if decides else _hash(value)
    shown = "" if decides else short_text(value)
    return Value(key, name, token, shown, inner, is_opened=decides)
  if kind.__eq__ is object.__eq__:
    text = short_text(value)
    return Value(
        key,
        name,
        numbers.of(value),
        text,
        {},
        is_by_identity=True,
        file=_file(value),
        type_file=_type_file(kind),
    )
  return Value(key, name, _hash(value), _text(value), {})


def _text(value: Any) -> str:
  if type(value) is not frozenset or not value:
    return short_text(value)
  # Equal sets may be in different orders.
  return f"frozenset({{{', '.join(sorted(map(short_text, value)))}}})"


def _file(value: Any) -> str:
  code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
  return getattr(code, "co_filename", "")


def _type_file(kind: type) -> str:
  module = sys.modules.get(kind.__module__)
  return getattr(module, "__file__", None) or ""


def _simple(value: Any, key: Any, name: str) -> Value:
  is_long = isinstance(value, (str, bytes)) and len(value) > _MAX_KEPT
  token = (len(value), hash(value)) if is_long else value
  return Value(key, name, token, short_text(value), {})


def _hash(value: Any) -> Any:
  try:
    return hash(value)
  except Exception:  # a user's may raise, and a list has none
    return short_text(value)


def _parts(value: Any) -> tuple[Mapping[str, Any], bool] | None:
  """The parts of a value, and whether equality depends on them alone.

  None if a value of this type has no parts.
  """
  kind = type(value)
  take_apart = special_parts.get((kind.__module__, kind.__name__))
  if take_apart is not None:
    return take_apart(value), True
  if isinstance(value, (type, enum.Enum)):
    return None
  if isinstance(value, tuple) and kind.__eq__ is tuple.__eq__:
    names = getattr(value, "_fields", None)
    if isinstance(names, tuple) and len(names) == len(value):
      return {f".{n}": part for n, part in zip(names, value)}, True
    return _items(value), True
  if isinstance(value, list):
    return _items(value), True
  if isinstance(value, (dict, collections.abc.Mapping)):
    return {f"[{k!r}]": part for k, part in value.items()}, True
  if isinstance(value, types.MethodType):
    return {".__func__": value.__func__, ".__self__": value.__self__}, True
  if kind.__eq__ is object.__eq__:
    return None
  if dataclasses.is_dataclass(value):
    names = [f.name for f in dataclasses.fields(value) if f.compare]
    parts = {f".{n}": getattr(value, n) for n in names if hasattr(value, n)}
    return parts, _has_generated_eq(kind)
  own = getattr(value, "__dict__", None)
  return ({f".{n}": part for n, part in own.items()}, False) if own else None


def _items(value: Any) -> dict[str, Any]:
  return {f"[{index}]": part for index, part in enumerate(value)}


def _is_partitioned(value: Any) -> bool:
  """Whether it is a flattened pytree: its leaves, and its treedef."""
  return (
      type(value) is tuple
      and len(value) == 2
      and type(value[1]).__name__ == "PyTreeDef"
      and type(value[0]) is tuple
      and value[1].num_leaves == len(value[0])
  )


def _has_generated_eq(kind: type) -> bool:
  return "<string>" in getattr(
      getattr(kind.__eq__, "__code__", None), "co_filename", ""
  ) or getattr(kind.__eq__, "__qualname__", "").startswith("__create_fn__")


def _text_of_parts(value: Value) -> str:
  """The text of a value with a few parts, as Python would write it."""
  texts, length = [], 0
  for label, part in value.parts.items():
    text = part.text
    if value.type_name not in ("tuple", "list"):
      text = f"{label[1:]}={text}" if label[:1] == "." else f"{label}: {text}"
    texts.append(text)
    length += len(text) + 2
    if length > MAX_TEXT:
      break
  inner = ", ".join(texts)
  if value.type_name == "tuple":
    return f"({inner},)" if len(value.parts) == 1 else f"({inner})"
  return (
      f"[{inner}]"
      if value.type_name == "list"
      else f"{value.type_name}({inner})"
  )


def placed_in(value: Value, where: Where) -> Value:
  """The same description, of a value in another part of the call."""
  parts = {label: placed_in(part, where) for label, part in value.parts.items()}
  return value._replace(parts=parts, where=where)
