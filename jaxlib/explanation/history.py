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
"""Remembers the signatures that each function was dispatched with.

The last `MAX_SIGNATURES` of a function are kept, by value. All of it may run in
any thread. No code of the user's runs under the lock: no flatten, hash or repr.
"""

from __future__ import annotations

import collections
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from jaxlib import _fastpath_locks as locks
from jaxlib._fastpath_difference import (
    CONFIG,
    GONE,
    NOT_NOTED,
    NOT_TOLD,
    Difference,
    Meanings,
    Origin,
    differences,
    distance,
    static_value_differences,
    structure_differences,
    whole_call,
)
from jaxlib._fastpath_lineage import lineage_of
from jaxlib._fastpath_origin import Definition
from jaxlib._fastpath_signature import Leaf, Signature, is_exact
from jaxlib._fastpath_structure import Parameters, Structure
from jaxlib._fastpath_value import Value, numbers

MAX_SIGNATURES = 64  # of one function
_MAX_OUTPUTS = 4  # calls whose outputs are remembered

lock = locks.free_after_fork(threading.RLock())
_function_numbers = itertools.count(1)


class History:
  """The signatures of one function, oldest first."""

  def __init__(self, owner: weakref.ref, wrapper: History | None) -> None:
    self._owner = owner
    self._wrapper = wrapper  # that it shares with others
    self.function_number = next(_function_numbers)
    self.definition: Definition | None = None
    self.lineage = 0
    self.parameters: Parameters | None = None
    self.library = ""  # of the jitted function, if a library's
    # With what stands for the jitted function that each was dispatched by.
    self.signatures: dict[Signature, Any] = {}
    self.raised: dict[Signature, Any] = {}  # of calls that did
    self.seen = 0
    self._twins = 0  # of those, equal to others in all but their parts
    self.reasons: set[str] = set()
    # What stands for parts of signatures, and its meaning.
    self._structures: dict[Any, Structure] = {}
    self._statics: dict[Any, tuple[str, Value]] = {}
    # The outputs of the last calls, while they live.
    self._outputs: collections.deque[list[weakref.ref]] = collections.deque(
        maxlen=_MAX_OUTPUTS
    )
    self._leaves: dict[int, Leaf] = {}
    self._numbers: dict[Any, int] = {}  # by what makes each leaf
    self._next_number = itertools.count()
    self._begun = 0  # dispatches
    self._ended = 0
    self._running = 0  # whose signatures are not added yet
    self._forget_at = 1024

  def define(self, cache_miss: Any, definition: Definition) -> None:
    """Notes where the function is defined."""
    with lock:
      if self.definition is None:
        name, options = cache_miss.function_name, cache_miss.global_cache_key
        place = name, definition.line, hash(options)
        self.lineage = lineage_of(place, self._owner)
        self.definition = definition

  @property
  def dropped(self) -> int:
    return self.seen - self._twins - len(self.signatures)

  def begin(self, slow_dispatches: int) -> bool:
    """Keeps everything until `end` or `give_up`.

    Args:
      slow_dispatches: how many slow dispatches the function, or the wrapper that
        it shares with others, has had, whether explained or not.

    Returns:
      Whether this is the function's first slow dispatch.
    """
    with lock:
      # Of a wrapper's calls, those before the first that was noted may have
      # been this function's.
      noted = self if self._wrapper is None else self._wrapper
      is_first = self._ended == 0 and slow_dispatches <= noted._begun
      noted._begun += 1
      self._running += 1
      return is_first

  def end(
      self, signature: Signature | None, jitted: Any, is_new: bool = False
  ) -> None:
    """Remembers the signature of a dispatch, if it has one.

    Args:
      signature: the dispatch's.
      jitted: the jitted function's `CacheMiss`.
      is_new: whether it is new although an equal signature is known.
    """
    with lock:
      self._ended += 1
      if signature is not None:
        is_twin = is_new and signature in self.signatures
        self._twins += is_twin
        self.seen += is_twin or signature not in self.signatures
        _add(self.signatures, signature, numbers.of(jitted))
      self._settle()

  def is_jitted_anew(self, signature: Signature, jitted: Any) -> bool:
    """Whether another jitted function had this signature before."""
    known = self.signatures.get(signature)
    return known is not None and known != numbers.of(jitted)

  def note_outputs(self, outputs: list[Any]) -> None:
    """Remembers what a dispatch returned, without keeping it alive."""
    try:
      self._outputs.append(list(map(weakref.ref, outputs)))
    except TypeError:  # not all are arrays
      return

  def own_outputs(self) -> dict[int, int]:
    """The index of each output that is still alive, by its `id`."""
    outputs = (enumerate(refs) for refs in tuple(self._outputs))
    pairs = itertools.chain.from_iterable(outputs)
    return {
        id(array): index for index, ref in pairs if (array := ref()) is not None
    }

  def give_up(self, raised: Signature | None = None) -> None:
    """Ends a dispatch that raised or is part of another call."""
    with lock:
      if raised is not None:
        _add(self.raised, raised, None)
      self._settle()

  def number_of(self, key: Any, leaf: Callable[[], Leaf]) -> int:
    """The number of the leaf with this key; `leaf` makes it if it is new."""
    number = self._numbers.get(key)
    if number is None:
      made = leaf()
      with lock:
        number = self._numbers.setdefault(key, next(self._next_number))
        self._leaves.setdefault(number, made)
    return number

  def note_static(
      self, key: Any, described: Callable[[], tuple[str, Value]]
  ) -> None:
    """Keeps the description of a static argument under `key`."""
    if key not in self._statics:
      made = described()
      with lock:
        self._statics[key] = made

  def note_structure(self, key: Any, make: Callable[[], Structure]) -> None:
    """Keeps the structure that `make` makes under `key`."""
    if key not in self._structures:
      made = make()
      with lock:
        self._structures[key] = made

  def differences(
      self,
      signature: Signature | None,
      config_names: tuple[str, ...],
      origin: Origin,
      strictly: Callable[[], Iterator[Difference]],
  ) -> tuple[Difference, ...]:
    """From the closest signature that is remembered.

    Args:
      signature: the dispatch's.
      config_names: of the signature's configuration.
      origin: where arguments come from.
      strictly: for a signature like an earlier one, what tells them apart.
    """
    if signature is None:
      return (whole_call(NOT_TOLD),)
    with lock:
      known = dict(self.signatures)
    if not known:
      return (whole_call(NOT_NOTED),)
    if signature in known:
      return tuple(strictly()) or (whole_call(GONE),)
    meanings = Meanings(
        self._structures,
        self._statics,
        self._leaves,
        config_names,
        self.library,
    )
    # The oldest of those as close, so that what is advised is one thing.
    closest = min(known, key=lambda old: distance(old, signature, meanings))
    found = tuple(differences(closest, signature, meanings, origin))
    # A configuration value may be no part of the cache's key: one is the cause
    # only if nothing else is.
    others = tuple(d for d in found if d.kind != CONFIG)
    return others or found or (whole_call(NOT_TOLD),)

  def may_collide(self, signature: Signature) -> bool:
    """Whether two unequal calls may both have this signature."""
    return self._structures[signature.structure].may_collide or not all(
        is_exact(key) for *_, key in signature.statics
    )

  def strict_differences(
      self,
      signature: Signature,
      structure: Structure,
      statics: dict[Any, tuple[str, Value]],
  ) -> Iterator[Difference]:
    """The differences from an earlier call whose parts have the same hashes."""
    for key, described in statics.items():
      yield from static_value_differences(
          self._statics[key], described, is_strict=True
      )
    known = self._structures[signature.structure]
    yield from structure_differences(known, structure, set(), True)

  def _settle(self) -> None:
    self._running -= 1
    if self._running == 0 and self._size() >= self._forget_at:
      self._forget()

  def _size(self) -> int:
    paths = sum(len(each.paths) for each in self._structures.values())
    return len(self._leaves) + len(self._statics) + paths

  def _forget(self) -> None:
    """Drops what belongs to no signature that is kept."""
    kept = (*self.signatures, *self.raised)
    structures = {signature.structure for signature in kept}
    statics = {key for signature in kept for *_, key in signature.statics}
    leaves = {
        number
        for signature in kept
        for number in memoryview(signature.leaves).cast("I")
    }
    self._structures = _only(self._structures, structures)
    self._statics = _only(self._statics, statics)
    self._leaves = _only(self._leaves, leaves)
    self._numbers = {k: n for k, n in self._numbers.items() if n in leaves}
    # So that what is kept is gone through once in as many dispatches.
    self._forget_at = 2 * self._size() + 1024


def _add(
    signatures: dict[Signature, Any], signature: Signature, jitted: Any
) -> None:
  """Newest last: one that comes again moves to the end."""
  signatures.pop(signature, None)
  signatures[signature] = jitted
  if len(signatures) > MAX_SIGNATURES:
    del signatures[next(iter(signatures))]


def _only(mapping: dict[Any, Any], keys: set[Any]) -> dict[Any, Any]:
  return {key: value for key, value in mapping.items() if key in keys}


_histories: dict[tuple[int, ...], tuple[weakref.ref, History]] = {}


def history_of(cache_miss: Any, wrapped: Any = None) -> History:
  """The history of the function, or of the computation, behind a dispatch.

  Args:
    cache_miss: what dispatches.
    wrapped: the one of several functions that share it, if there are several.
  """
  if wrapped is not None:
    key = (id(wrapped), id(cache_miss.fun), hash(cache_miss.global_cache_key))
    return _kept(key, wrapped, history_of(cache_miss))
  owner = cache_miss.fun
  key = (id(owner), hash(cache_miss.global_cache_key))
  try:
    return _kept(key, owner)
  except TypeError:  # None, or without room for a weak reference
    return _kept((id(cache_miss), 0), cache_miss)


def _kept(
    key: tuple[int, ...], owner: Any, wrapper: History | None = None
) -> History:
  """The history that is kept until its owner is gone."""
  ref = weakref.ref(owner, lambda _: _histories.pop(key, None))
  with lock:
    known = _histories.get(key)
    if known is None or known[0]() is not owner:
      known = _histories[key] = (ref, History(ref, wrapper))
    return known[1]
