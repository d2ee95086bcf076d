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
"""What this wheel adds to jaxlib: the rule's switch and counters, and misses.

  with jaxlib.pjit.explain() as misses:
    train()
  for miss in misses:
    print(miss)

  with jaxlib.pjit.assert_no_misses():
    for batch in batches:
      state = step(state, batch)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from jaxlib import _fastpath_compilations, _fastpath_explain
from jaxlib._fastpath_compilations import Compilation as Compilation
from jaxlib._fastpath_difference import Difference as Difference
from jaxlib._fastpath_dispatch import Dispatch as Dispatch
from jaxlib._fastpath_summary import summary
from jaxlib._pjit import counters as counters
from jaxlib._pjit import physical_out_shardings as physical_out_shardings
from jaxlib._pjit import set_explaining
from jaxlib._pjit import set_physical_out_shardings as set_physical_out_shardings


@contextmanager
def listening(
    listener: Callable[[Dispatch], None],
    compilations: Callable[[Compilation], None] | None = None,
) -> Iterator[None]:
  """A block in which `listener` is told of each slow dispatch.

  It is called in the thread that made the dispatch, maybe in several at once.
  What it raises, the dispatch raises only where JAXLIB_PJIT_STRICT=1 says so.

  Args:
    listener: what is told.
    compilations: what is told in the same way of all that JAX compiles other
      than for your jitted functions: ahead of time, and for its operations
      outside jit.
  """
  tell_of_compilation = compilations or _ignore
  _fastpath_explain.add_listener(listener)
  _fastpath_compilations.add_listener(tell_of_compilation)
  set_explaining(True)
  try:
    yield
  finally:
    set_explaining(False)
    _fastpath_compilations.remove_listener(tell_of_compilation)
    _fastpath_explain.remove_listener(listener)


def _ignore(compilation: Compilation) -> None:
  """A listener that does nothing."""


@contextmanager
def _collected(wanted: Callable[[Dispatch], bool]) -> Iterator[list[Dispatch]]:
  found: list[Dispatch] = []

  def listener(dispatch: Dispatch) -> None:
    if wanted(dispatch):
      found.append(dispatch)

  with listening(listener):
    yield found


def dispatches() -> AbstractContextManager[list[Dispatch]]:
  """A block with the list of its slow dispatches, of any thread, as they come.

  The first call of a function is one, but not a miss.
  """
  return _collected(lambda dispatch: True)


def explain() -> AbstractContextManager[list[Dispatch]]:
  """A block with the list of its fastpath misses, of any thread, as they come."""
  return _collected(lambda dispatch: dispatch.is_miss)


@contextmanager
def assert_no_misses() -> Iterator[None]:
  """Raises AssertionError, with the explanations, if the block has a miss."""
  with explain() as misses:
    yield
  if misses:
    raise AssertionError(summary(misses))
