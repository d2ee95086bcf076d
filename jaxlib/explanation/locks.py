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
"""Locks that are free in a forked process, whichever thread held them."""

from __future__ import annotations

import os
import threading
from typing import Any


def free_after_fork(lock: Any) -> Any:
  """Returns `lock`, one of `threading`'s, and keeps it for the whole process.

  Only the thread that forks runs on in the child. A lock that another thread
  held would never be released there, and a slow dispatch would wait forever.
  """
  os.register_at_fork(after_in_child=lock._at_fork_reinit)
  return lock


def new() -> Any:
  """A `threading.Lock` that is free after a fork."""
  return free_after_fork(threading.Lock())
