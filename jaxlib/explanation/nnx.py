"""Finds the user's names in the modules that Flax NNX passes to `jax.jit`.

Nothing is imported. If a release works differently, Flax's own paths are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jaxlib import _fastpath_value as values
from jaxlib._fastpath_value import Value


def _graph_parts(graph: Any) -> dict[str, Any]:
  """The attributes of an NNX graph, by the names that the user gave them."""
  nodes, attributes = iter(graph.nodes), iter(graph.attributes)
  parts: dict[str, Any] = {}

  def walk(path: str) -> None:
    node = next(nodes)
    parts[path] = getattr(node, "type", type(node))
    name = type(node).__name__
    if name == "VariableDef":
      parts.update({f"{path}.{k}": v for k, v in node.metadata.items()})
    elif name == "TreeNodeDef":
      parts[f"{path}."] = node.treedef
    elif name == "NodeDef":
      if not isinstance(node.metadata, type):
        parts[f"{path}."] = node.metadata
      for _ in range(node.num_attributes):
        key, attribute = next(attributes)
        inner = path + (f".{key}" if isinstance(key, str) else f"[{key!r}]")
        if type(attribute).__name__ == "NodeAttr":
          walk(inner)
        elif not str(key).startswith("_pytree__"):
          is_static = type(attribute).__name__ == "Static"
          parts[inner] = attribute.value if is_static else type(attribute)

  walk("")
  return parts


def _parts_of_graph(graph: Any) -> Mapping[str, Any]:
  try:
    return _graph_parts(graph)
  except Exception:  # a release that writes its graphs otherwise
    return {".graphdef": str(graph)}


values.special_parts["flax.nnx.graphlib", "GraphDef"] = _parts_of_graph
values.special_parts["flax.nnx.graph", "GraphDef"] = _parts_of_graph

_NNX_STATE = re.compile(r"\._graphdef|\.states\[0\]|\.value$")
_NNX_KEY = re.compile(r"\['([^\W\d]\w*)'\]")


def is_split_module(kind: type) -> bool:
  """Whether a type of node stands for a module: a graph, and states."""
  return kind.__name__ == "NodeStates"


def user_path(text: str, argument: Any) -> str:
  """The path in an argument, as the user would write it."""
  if not is_split_module(type(argument)):
    return text
  return _NNX_KEY.sub(r".\1", _NNX_STATE.sub("", text))


def user_parts(parts: Mapping[str, Value]) -> dict[str, Value]:
  """The parts of a module, with the user's names for its attributes."""
  found = dict(parts)
  for label, part in parts.items():
    if part.type_name == "GraphDef":
      del found[label]
      found.update(part.parts[""].parts)
  return found
