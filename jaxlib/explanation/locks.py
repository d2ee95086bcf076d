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
"""Locks that a forked process finds free, whichever thread held them."""

from __future__ import annotations

import os
import threading
from typing import Any


def free_after_fork(lock: Any) -> Any:
  """Returns `lock`, which the process then keeps, of `threading`'s own types.

  Only the thread that forks goes on in the child. A lock that another one held
  would never be released there, and a slow dispatch would wait for it for good.
  """
  os.register_at_fork(after_in_child=lock._at_fork_reinit)
  return lock


def new() -> Any:
  """A `threading.Lock` that is free after a fork."""
  return free_after_fork(threading.Lock())
