"""Finds the user's names for what Equinox passes to `jax.jit`.

`equinox.filter_jit` jits a function of its own. It passes the user's arrays, and
all else of the user's arguments as one static argument. Nothing is imported. If
a release works differently, Equinox's own paths are shown.
"""

from __future__ import annotations

import re
from typing import Any

from jaxlib import _fastpath_value as values
from jaxlib._fastpath_structure import (
    Parameters,
    leaf_paths,
    parameters_of,
    partitioned,
)
from jaxlib._fastpath_value import Value, described

_FILE = re.compile(r"[/\\]equinox[/\\]_jit\.py$")
_BY_PLACE = re.compile(r"^\[0\]\[(\d+)\]")
_BY_NAME = re.compile(r"^\[1\]\['(\w+)'\]")
_FUNCTION = "the function"


def _is_ours(function: Any, static: Any) -> bool:
  code = getattr(function, "__code__", None)
  is_its = code is not None and _FILE.search(code.co_filename) is not None
  return is_its and type(static) is tuple and len(static) == 3


def _parameters(static: Any) -> Parameters:
  leaves, treedef = static[0]
  try:
    return parameters_of(treedef.unflatten(leaves))
  except Exception:  # a callable that needs its arrays
    return parameters_of(None)


def renamed_leaves(function: Any, args: tuple[Any, ...]) -> dict[str, str]:
  """The user's path for each path in what is passed to `jax.jit`."""
  if len(args) != 3 or not _is_ours(function, args[2]):
    return {}
  names, own = _parameters(args[2]), parameters_of(function)
  fun, first, rest = (leaf_paths(treedef) for _, treedef in args[2])
  paths = {
      "fun": [_FUNCTION + path for path in fun],
      "first": [names.name(0) + path for path in first],
      "rest": [_user_path(path, names) for path in rest],
  }
  return {
      f"{own.name(index)}[{part!r}][{leaf}]": path
      for index in (0, 1)
      for part in args[index]
      for leaf, path in enumerate(paths[part])
  }


def _user_path(path: str, names: Parameters) -> str:
  path = _BY_PLACE.sub(lambda found: names.name(int(found[1]) + 1), path)
  return _BY_NAME.sub(r"\1", path)


def described_static(function: Any, name: str, value: Any) -> tuple[str, Value]:
  """A static argument and its name, or what it holds, under the user's name."""
  if not _is_ours(function, value):
    return name, described(value)
  names = _parameters(value)
  fun, first, rest = (partitioned(leaves, tree) for leaves, tree in value)
  parts = {_FUNCTION: fun, names.name(0): first}
  for label, kind in rest.parts.items():
    for inner, part in kind.parts.items():
      parts[_user_path(label + inner, names)] = part
  return "", values.tree("arguments", parts)
