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
"""Finds the user's own lines: where a function is defined and where it is called.

All code is the user's own unless it belongs to JAX or Python, or is in a
`site-packages` folder. Functions here may run in any thread.

Caution: reading attributes of the user's objects may run their code, so do not
hold a lock.
"""

from __future__ import annotations

import collections
import functools
import os
import re
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

OWN = ""  # the package of the user's own code
_BELOW = "<below>"  # the package of JAX's and Python's code
_OURS = str(Path(__file__).parent)
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]+)")

# Packages that only pass calls on: they start programs or wrap functions. If
# the user's code is on both sides of one, the inner frame is the caller.
_PASSING_ON = frozenset((
    "IPython",
    "_pytest",
    "absl",
    "beartype",
    "click",
    "coverage",
    "equinox",
    "execnet",
    "fire",
    "flax",
    "hydra",
    "ipykernel",
    "jaxtyping",
    "pluggy",
    "pytest",
    "typeguard",
    "typer",
    "xdist",
))

_MAX_WRAPPERS = 20
_MAX_SEARCHED = 300  # objects to search for a function of the user's
_MAX_ITEMS = 20  # to search in one container


class Caller(NamedTuple):
  """Where a call came from."""

  line: str  # `file:line (function)` of the user's own frame
  through: str  # that of the library's frame that it called; empty if none
  site: str = ""  # that of the innermost frame that is not JAX's


class Definition(NamedTuple):
  """Where a function is defined."""

  line: str  # `file:line`, and the name if the jitted function has another
  package: str  # `OWN`, or the library's


UNKNOWN = Definition("?", OWN)


def _working_directory() -> str:
  try:
    return f"{Path.cwd()}{os.sep}"
  except OSError:  # it was deleted
    return ""


# Paths are shown relative to it. The program may leave it.
_START = _working_directory()


@functools.lru_cache(1 << 14)
def shown(file: str) -> str:
  """The shortest form of a file's path that still leads to it."""
  library = _PACKAGE.search(file)
  if library is not None:
    return file[library.start(1) :]
  return file.removeprefix(_START)


@functools.lru_cache(1 << 14)
def package_of(file: str) -> str:
  """The library that a file belongs to: its name, `OWN`, or `_BELOW`."""
  if file.startswith("<@beartype"):
    return "beartype"
  if file.startswith(("<frozen ", _OURS)):
    return _BELOW
  info = sys.modules["jax._src.source_info_util"]
  if not info.is_user_filename(file):
    return _BELOW
  library = _PACKAGE.search(file)
  if library is None:
    return OWN
  name = library[1].removesuffix(".py")
  return _BELOW if name in ("jax", "jaxlib") else name


def is_below(package: str) -> bool:
  """Whether a package is JAX or Python itself."""
  return package == _BELOW


def _at(frame: types.FrameType) -> str:
  code = frame.f_code
  return f"{shown(code.co_filename)}:{frame.f_lineno} ({code.co_name})"


def caller() -> Caller:
  """Where the running call of JAX came from.

  This is the outermost frame of the user's code that called a library or JAX.
  If no frame is the user's, it is the innermost frame of a library.
  """
  own = beside = fallback = site = None
  through: types.FrameType | None = None
  is_left = True  # whether a library or JAX was called since the user's frame
  frame = sys._getframe(1)
  while frame is not None:
    package = package_of(frame.f_code.co_filename)
    if site is None and package != _BELOW:
      site = frame
    if package == OWN:
      if is_left:
        own, through = frame, beside
      is_left, beside = False, None
    elif package != _BELOW:
      beside = frame
      if package not in _PASSING_ON:
        is_left, fallback = True, fallback or frame
    frame = frame.f_back
  own = own or fallback or beside
  if own is None:
    return Caller("?", "")
  return Caller(_at(own), "" if through is None else _at(through), _at(site))


def definition_of(
    fun: Any, static_arguments: Iterable[Any] = ()
) -> tuple[Definition, types.FunctionType | None]:
  """Where the function behind what was jitted is defined.

  Args:
    fun: what was given to `jax.jit`.
    static_arguments: those of the running call, since some libraries pass the
      user's function as one. They are searched only if `fun` is a library's.

  Returns:
    The definition, and the user's function if the next call of `fun` may have a
    different one.
  """
  function = _unwrapped(fun)
  if function is None:
    return UNKNOWN, None
  package = package_of(function.__code__.co_filename)
  is_operation = package == _BELOW and type(fun) is not functools.partial
  if package == OWN or is_operation:
    return Definition(_line(function), package), None
  wrapped = _wrapped_by_a_caller()
  if wrapped is not None:
    return Definition(_line(wrapped), OWN), wrapped
  found = _found_in((fun, *static_arguments))
  if found is None:
    return Definition(_line(function), package), None
  return Definition(f"{_line(found)} ({found.__name__})", OWN), found


def library_of(fun: Any) -> str:
  """The library that the jitted function itself belongs to, or `OWN`."""
  function = _unwrapped(fun)
  return OWN if function is None else package_of(function.__code__.co_filename)


def _line(function: types.FunctionType) -> str:
  code = function.__code__
  return f"{shown(code.co_filename)}:{code.co_firstlineno}"


def name_of(fun: Any, jax_name: str) -> str:
  """The name of what was jitted. JAX has no name for a callable object."""
  if not jax_name.startswith("<unnamed"):
    return without_jit(jax_name)
  while type(fun) is functools.partial:
    fun = fun.func
  return getattr(fun, "__name__", type(fun).__name__)


def without_jit(name: str) -> str:
  """A function's name, from the name of the module that JAX made for it."""
  return name.removesuffix(")").removeprefix("jit(").removeprefix("jit_")


def _unwrapped(fun: Any) -> types.FunctionType | None:
  """The Python function inside all wrappers, or None if it is not known."""
  for _ in range(_MAX_WRAPPERS):
    inner = _inner(fun)
    if inner is None:
      break
    fun = inner
  return fun if type(fun) is types.FunctionType else None


def _inner(fun: Any) -> Any:
  """What a callable object calls, or None."""
  if isinstance(fun, functools.partial):
    return fun.func
  if isinstance(fun, types.MethodType):
    return fun.__func__
  wrapped = _attribute(fun, "__wrapped__")
  if wrapped is not None or type(fun) is types.FunctionType:
    return wrapped
  return getattr(type(fun), "__call__", None)  # noqa: B004 - inherited, maybe


def _wrapped_by_a_caller() -> types.FunctionType | None:
  """The user's function inside a library's wrapper that is being called.

  Some libraries jit one function of their own for many of the user's. The frames
  between the user's code and JAX then hold the user's function.
  """
  frame = sys._getframe(2)
  while frame is not None:
    code = frame.f_code
    package = package_of(code.co_filename)
    if package == OWN:
      return None
    if package != _BELOW and code.co_argcount:
      wrapper = frame.f_locals.get(code.co_varnames[0])
      wrapped = _unwrapped(_attribute(wrapper, "__wrapped__"))
      if wrapped is not None and _is_own(wrapped):
        return wrapped
    frame = frame.f_back
  return None


def _attribute(value: Any, name: str) -> Any:
  try:
    return getattr(value, name, None)
  except Exception:  # the user's may raise anything
    return None


def _is_own(function: types.FunctionType) -> bool:
  return package_of(function.__code__.co_filename) == OWN


def _found_in(roots: Iterable[Any]) -> types.FunctionType | None:
  """The first function of the user's that is reached from some objects."""
  waiting = collections.deque(roots)
  seen = {id(root): root for root in waiting}  # kept, so that each `id` is one's
  while waiting and len(seen) <= _MAX_SEARCHED:
    value = waiting.popleft()
    if type(value) is types.FunctionType and _is_own(value):
      return value
    for part in _parts(value):
      if id(part) not in seen:
        seen[id(part)] = part
        waiting.append(part)
  return None


def _parts(value: Any) -> Iterator[Any]:
  """The parts of a callable, object or container that may be functions."""
  if isinstance(value, (tuple, list)):
    yield from value[:_MAX_ITEMS]
  elif type(value) is dict:
    yield from list(value.values())[:_MAX_ITEMS]
  elif isinstance(value, functools.partial):
    yield from (value.func, *value.args, *value.keywords.values())
  elif isinstance(value, types.MethodType):
    yield from (value.__func__, value.__self__)
  elif type(value) is types.FunctionType:
    yield getattr(value, "__wrapped__", None)
    yield from map(_content, value.__closure__ or ())
    yield from value.__defaults__ or ()
  elif not isinstance(value, (type, types.ModuleType)):
    if callable(value):
      yield _inner(value)
    named = _attribute(value, "__dict__") or {}
    yield from list(named.values())[:_MAX_ITEMS]


def _content(cell: types.CellType) -> Any:
  try:
    return cell.cell_contents
  except ValueError:  # not filled yet
    return None
