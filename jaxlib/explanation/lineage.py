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
"""Tells a function that is jitted again and again from functions that differ.

A new function continues the lineage of an earlier one from the same line if the
earlier one is gone, as in `for ...: jax.jit(lambda x: x)(1)`, or if the two do
the same. Different functions that a factory makes have a lineage each.

May run in any thread.
"""

from __future__ import annotations

import functools
import itertools
import types
import weakref
from typing import Any

from jaxlib import _fastpath_locks as locks

_MAX_MEMBERS = 64  # functions of one place that are told apart
_MAX_PLACES = 4096
_MAX_DEPTH = 4  # of functions in functions
_PLAIN = (bool, int, float, complex, str, bytes)  # `==` runs no user's code

_lock = locks.new()
_numbers = itertools.count(1)
_members: dict[Any, list[tuple[weakref.ref, int]]] = {}


def lineage_of(place: Any, owner: weakref.ref) -> int:
  """The number of a new function's lineage.

  Args:
    place: equal for functions of one name, place and way of jitting.
    owner: a weak reference to the function.
  """
  function = owner()
  with _lock:
    if len(_members) == _MAX_PLACES:
      _members.clear()
    members = _members.setdefault(place, [])
    for index, (ref, number) in enumerate(members):
      earlier = ref()
      if earlier is None:
        members[index] = owner, number
        return number
      if earlier is function or _is_made_alike(earlier, function):
        break
    else:
      is_full = len(members) == _MAX_MEMBERS
      number = members[-1][1] if is_full else next(_numbers)
    if len(members) < _MAX_MEMBERS:
      members.append((owner, number))
    return number


def _is_made_alike(a: Any, b: Any, depth: int = 0) -> bool:
  """Whether two functions have the same code, defaults and closure."""
  if a is b or depth == _MAX_DEPTH:  # a closure may hold its own function
    return True
  if type(a) is not type(b):
    return False
  if type(a) is functools.partial:
    had, has = ((f.args, tuple(f.keywords.items())) for f in (a, b))
    is_same = _is_made_alike(a.func, b.func, depth + 1)
    return is_same and _are_same(had, has, depth)
  if type(a) is types.MethodType:
    return a.__self__ is b.__self__ and a.__func__ is b.__func__
  if type(a) is not types.FunctionType or a.__code__ is not b.__code__:
    return False
  had, has = (
      (f.__defaults__, tuple(map(_content, f.__closure__ or ())))
      for f in (a, b)
  )
  return _are_same(had, has, depth)


def _are_same(a: Any, b: Any, depth: int) -> bool:
  if a is b:
    return True
  if type(a) is not type(b):
    return False
  if type(a) is tuple:
    pairs = zip(a, b)
    return len(a) == len(b) and all(_are_same(*pair, depth) for pair in pairs)
  if type(a) in _PLAIN:
    return a == b
  return _is_made_alike(a, b, depth + 1)


def _content(cell: types.CellType) -> Any:
  try:
    return cell.cell_contents
  except ValueError:  # not filled yet
    return None
