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
"""pytest's marker and fixture `no_fastpath_misses`, from an entry point.

  @pytest.mark.no_fastpath_misses
  def test_training(): ...

A test with either of them fails if a call in it misses the fastpath, and shows
the explanations. For all other tests nothing is done or imported.

Caution: pytest loads this in every run beside this jaxlib. It must stay cheap,
and must not import JAX, since tests may change JAX's settings before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

_NAME = "no_fastpath_misses"


def pytest_configure(config: pytest.Config) -> None:
  """Registers the marker, which strict pytest asks for."""
  config.addinivalue_line(
      "markers",
      f"{_NAME}: fail if a call of a jitted function misses JAX's fastpath",
  )


@pytest.fixture
def no_fastpath_misses() -> None:
  """Fails the test if a call of a jitted function misses JAX's fastpath."""


@pytest.hookimpl(hookwrapper=True)  # which the oldest pytest has, too
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
  """Watches the test's own code, not that of its fixtures."""
  is_marked = item.get_closest_marker(_NAME) is not None
  if not is_marked and _NAME not in getattr(item, "fixturenames", ()):
    yield
    return
  import jaxlib.pjit
  from jaxlib._fastpath_summary import summary

  with jaxlib.pjit.explain() as misses:
    outcome = yield
  if misses and outcome.excinfo is None:
    failure = pytest.fail.Exception(summary(misses), pytrace=False)
    outcome.force_exception(failure)
