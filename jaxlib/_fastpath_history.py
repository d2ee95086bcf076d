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
"""The signatures that each function was dispatched with, as far as remembered.

By value, the last `MAX_SIGNATURES` of a function. All of it may run in any
thread. No code of the user's runs under the lock: not a flatten, a hash or a
repr.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from jaxlib._fastpath_difference import (
    CONFIG,
    GONE,
    NOT_NOTED,
    NOT_TOLD,
    Difference,
    differences,
    distance,
    whole_call,
)
from jaxlib._fastpath_signature import Leaf, Path, Signature

MAX_SIGNATURES = 64  # of one function

lock = threading.RLock()
_function_numbers = itertools.count(1)


class History:
  """The signatures of one function, oldest first."""

  def __init__(self) -> None:
    self.function_number = next(_function_numbers)
    self.defined_at: str | None = None
    self.signatures: dict[Signature, None] = {}
    self.seen = 0
    self.reasons: set[str] = set()
    # What the numbers in signatures stand for.
    self._leaves: dict[int, Leaf] = {}
    self._numbers: dict[Any, int] = {}  # by what makes each leaf
    self._next_number = itertools.count()
    self._paths: dict[int, tuple[Path, ...]] = {}  # by structure
    self._texts: dict[int, int] = {}
    self._running = 0  # dispatches, whose signatures are not added yet
    self._forget_at = 1024

  @property
  def dropped(self) -> int:
    return self.seen - len(self.signatures)

  def begin(self) -> None:
    """Has nothing forgotten until `end`."""
    with lock:
      self._running += 1

  def end(self, signature: Signature | None) -> None:
    """Remembers the signature of a dispatch, if it has one."""
    with lock:
      self._running -= 1
      if signature is not None:
        self._add(signature)
      if self._running == 0 and self._size() >= self._forget_at:
        self._forget()

  def number_of(self, key: Any, leaf: Callable[[], Leaf]) -> int:
    """The number of the leaf that `leaf` makes, and `key` stands for."""
    number = self._numbers.get(key)
    if number is None:
      made = leaf()
      with lock:
        number = self._numbers.setdefault(key, next(self._next_number))
        self._leaves.setdefault(number, made)
    return number

  def knows_structure(self, structure: int) -> bool:
    return structure in self._paths

  def text_of(self, structure: int) -> int:
    return self._texts[structure]

  def note_structure(
      self, structure: int, paths: tuple[Path, ...], text: int
  ) -> None:
    with lock:
      self._texts[structure] = text
      self._paths[structure] = paths

  def differences(
      self, signature: Signature | None, config_names: tuple[str, ...]
  ) -> tuple[Difference, ...]:
    """From the closest signature that is remembered."""
    if signature is None:
      return (whole_call(NOT_TOLD),)
    if not self.signatures:
      return (whole_call(NOT_NOTED),)
    if signature in self.signatures:
      return (whole_call(GONE),)
    closest = min(
        reversed(self.signatures), key=lambda old: distance(old, signature)
    )
    found = tuple(
        differences(
            closest, signature, self._paths, self._leaves, config_names
        )
    )
    # Most configuration values are no part of the cache's key: one is the cause
    # only if nothing else is.
    others = tuple(d for d in found if d.kind != CONFIG)
    return others or found or (whole_call(NOT_TOLD),)

  def _add(self, signature: Signature) -> None:
    # The newest come last, a signature that came again among them.
    if signature not in self.signatures:
      self.seen += 1
    self.signatures.pop(signature, None)
    self.signatures[signature] = None
    if len(self.signatures) > MAX_SIGNATURES:
      del self.signatures[next(iter(self.signatures))]

  def _size(self) -> int:
    return len(self._leaves) + sum(map(len, self._paths.values()))

  def _forget(self) -> None:
    """Drops what no signature has, of calls that raised too."""
    structures = {signature.structure for signature in self.signatures}
    self._paths = {s: p for s, p in self._paths.items() if s in structures}
    self._texts = {s: t for s, t in self._texts.items() if s in structures}
    kept = {
        number
        for signature in self.signatures
        for number in memoryview(signature.leaves).cast("I")
    }
    self._leaves = {n: leaf for n, leaf in self._leaves.items() if n in kept}
    self._numbers = {key: n for key, n in self._numbers.items() if n in kept}
    # So that what is kept is gone through once in as many dispatches.
    self._forget_at = 2 * self._size() + 1024


_histories: dict[tuple[int, int], tuple[weakref.ref, History]] = {}


def history_of(cache_miss: Any) -> History:
  """The history of the function, or of the computation, behind a dispatch."""
  owner = cache_miss.fun
  key = (id(owner), hash(cache_miss.global_cache_key))
  try:
    ref = weakref.ref(owner, lambda _: _histories.pop(key, None))
  except TypeError:  # None, or without room for a weak reference
    key = (id(cache_miss), 0)
    ref = weakref.ref(cache_miss, lambda _: _histories.pop(key, None))
  with lock:
    known = _histories.get(key)
    if known is None or known[0]() is not ref():
      known = _histories[key] = (ref, History())
    return known[1]
