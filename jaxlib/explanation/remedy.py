"""What to write so that a difference goes away.

Each advice is one that a test follows to the letter, and sees the miss gone. An
empty one says that none is known to work.

State that is fed back is changed where it starts, before the loop: what the
function returns is what it returns. That helps if it comes back as it was then
given, which is known by the end of the call. If it does not, it is for the
function to return it as it came.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from jaxlib import _fastpath_origin as origin
from jaxlib import _pjit
from jaxlib._fastpath_signature import Leaf, Placement
from jaxlib._fastpath_structure import Path
from jaxlib._fastpath_value import Value, Where

MAKE_ONCE = "make it once, outside the loop"
EACH_BEFORE = "call it once with each before the loop"
NO_OTHER_WAY = f"each has an entry of its own: {EACH_BEFORE}"
SWITCH_ON = "switch this wheel's rule on: JAXLIB_PJIT_PHYSICAL_OUT_SHARDINGS=1"
ONE_WAY = "pass it by position in every call, or by name in every call"
_NUMBERS = frozenset(("int", "float", "complex"))
# Each holds the values of those before it.
_SCALARS = {"bool": False, "int": 0, "float": 0.0, "complex": 0j}


def name(path: Path) -> str:
  """The argument as code: its path, if that can be written."""
  return "x" if "<" in path.text else path.text


def shape(
    path: Path, was: Leaf, now: Leaf, is_own: bool, is_steady: bool
) -> str:
  x = name(path)
  if was.shape == now.shape:
    if is_own:
      return (
          "start with the dtype that it is returned with, before the loop:"
          f" {cast(x, now)}"
      )
    made = _promoted(x, was, now)
    return f"give it one dtype in every call: {made}" if made else NO_OTHER_WAY
  if is_own and is_steady:
    shown = f"{now.dtype}[{','.join(map(str, now.shape))}]"
    return f"start with the shape that it is returned with: {shown}"
  if is_own:
    return (
        "make it as large as it gets before the loop, and write into it with"
        " jax.lax.dynamic_update_slice"
    )
  if len(was.shape) != len(now.shape) or not now.shape:
    return NO_OTHER_WAY
  target = tuple(map(max, was.shape, now.shape))
  small = was if now.shape == target else now
  widths = [(0, big - each) for big, each in zip(target, small.shape)]
  made = x if was.dtype == now.dtype else _promoted(x, was, now)
  if not made:
    return NO_OTHER_WAY
  return (
      f"pad it to {target} in every call, as here where it is {small.shape}:"
      f" jnp.pad({made}, {widths})"
  )


def cast(x: str, like: Leaf) -> str:
  return f"jnp.asarray({x}, '{like.dtype}')"


def _dtype(*leaves: Leaf) -> Any:
  """The dtype that JAX promotes them to, None if it does not."""
  values = (_SCALARS.get(leaf.kind, leaf.dtype) for leaf in leaves)
  try:
    return sys.modules["jax.numpy"].result_type(*values)
  except Exception:  # such as of 8-bit floats
    return None


def _promoted(x: str, was: Leaf, now: Leaf) -> str:
  """Code for an array that holds the values of both; empty if there is none."""
  dtype = _dtype(was, now)
  return "" if dtype is None else f"jnp.asarray({x}, '{dtype}')"


def type_of_argument(path: Path, was: Leaf, now: Leaf) -> str:
  x = name(path)
  if was.dtype is None and now.dtype is None:
    widest = max(was.kind, now.kind, key=[*_SCALARS].index)
    return f"pass one type in every call: {widest}({x})"
  array = was if was.dtype is not None else now
  other = now if array is was else was
  if other.dtype is None:
    if array.shape:
      return NO_OTHER_WAY
    is_like = array.weak_type and array.dtype == _dtype(other)
    made = f"jnp.asarray({x})" if is_like else _promoted(x, was, now)
    if not made:
      return NO_OTHER_WAY
  else:  # a numpy array, and one of JAX's
    array = was if was.placement is not None else now
    made = x if array.committed else f"jnp.asarray({x})"
  if array.committed:
    code = array.placement.code if array.placement else ""
    return (
        f"place it in every call: jax.device_put({made}, {code})"
        if code
        else ""
    )
  return f"pass an array in every call: {made}"


def weak_type(path: Path, now: Leaf, is_own: bool) -> str:
  x = name(path)
  if not is_own:
    return f"give it a dtype in every call: {cast(x, now)}"
  if now.weak_type:
    return f"return it with a dtype of its own: {x}.astype('{now.dtype}')"
  return f"start with a dtype of its own, before the loop: {cast(x, now)}"


def committed(path: Path, was: Leaf, now: Leaf, is_own: bool) -> str:
  placement = (was if was.committed else now).placement
  if placement is None or not placement.code:
    return ""
  when = "commit it before the loop" if is_own else "commit it in every call"
  return f"{when}: jax.device_put({name(path)}, {placement.code})"


def placed(
    path: Path, was: Leaf, now: Leaf, is_own: bool, is_steady: bool
) -> str:
  """For one that is placed otherwise, or is said to be placed otherwise."""
  had, has = (_code(path, leaf.placement) for leaf in (was, now))
  if is_own and is_steady:
    what, code, leaf = "place it before the loop as it is returned", has, now
  elif is_own:
    what, code, leaf = "have the function return it as it came", had, was
  elif was.committed and had:
    what, code, leaf = "place it as in the earlier call", had, was
  else:
    what, code, leaf = "place it so from the first call on", has, now
  if not code:
    return ""
  mesh = _told_mesh(leaf.placement, was.placement, now.placement)
  if is_own and not is_steady:
    constraint = f"jax.lax.with_sharding_constraint({name(path)}, {code})"
    return f"{what}: {constraint}{mesh}"
  return f"{what}: {_device_put(path, code)}{mesh}"


def _device_put(path: Path, code: str) -> str:
  # A key's own sharding does not say how its base array's is spelled. One that
  # seems to be there already would be left as it is.
  anew = ", may_alias=False" if path.is_base_array else ""
  return f"jax.device_put({name(path)}, {code}{anew})"


def _told_mesh(wanted: Placement, was: Placement, now: Placement) -> str:
  """Which mesh is wanted, where both go by the name of `mesh`."""
  if not was.mesh or not now.mesh:
    return ""
  if was.mesh != now.mesh:
    return f", with mesh = {wanted.mesh}"
  if was.devices != now.devices:
    devices = ", ".join(map(str, wanted.devices[:8]))
    return f", with a mesh of the devices {devices}, in that order"
  return ""


def _code(path: Path, placement: Placement) -> str:
  """The sharding to write; a key's, whose base array's is one longer."""
  if not path.is_base_array:
    return placement.code
  spec = placement.text
  if not placement.mesh or spec == "P()":
    return placement.code
  for end, shorter in ((", None)", ")"), ("(None,)", "()")):
    if spec.endswith(end):
      logical = spec.removesuffix(end) + shorter
      return placement.code.replace(spec, logical)
  return ""


def spelled(
    path: Path, was: Leaf, now: Leaf, is_own: bool, is_steady: bool
) -> str:
  # The spelling is the base array's, which its owner does not write.
  if path.is_base_array and not _pjit.physical_out_shardings():
    return SWITCH_ON
  if not path.is_base_array:
    return placed(path, was, now, is_own, is_steady)
  if is_own and is_steady and (code := _code(path, now.placement)):
    return f"place it before the loop as it is returned: {_device_put(path, code)}"
  codes = (_code(path, leaf.placement) for leaf in (was, now))
  code = min(filter(None, codes), key=len, default="")
  return code and f"place it so in every call: {_device_put(path, code)}"


def layout(path: Path, was: Leaf, now: Leaf, is_own: bool) -> str:
  order = _major_to_minor((now if is_own else was).layout)
  if order is None or now.placement is None or not now.placement.code:
    return ""
  when = "before the loop" if is_own else "in every call"
  sharding = now.placement.code
  if sharding.startswith("jax.devices"):
    sharding = f"SingleDeviceSharding({sharding})"
  is_old = sys.modules["jax"].__version_info__ < (0, 7)
  kind = "DeviceLocalLayout" if is_old else "Layout"
  return (
      f"give it one layout {when}: jax.device_put({name(path)},"
      f" Format({kind}({order}), {sharding}))"
  )


def _major_to_minor(text: str) -> Sequence[int] | None:
  """The order that a layout's text, such as `{1,0}`, has from the end."""
  numbers = text.strip("{}").split(",")
  if not all(number.isdigit() for number in numbers):
    return None  # tiled
  return tuple(map(int, reversed(numbers)))


def value(
    path: str, was: Value | None, now: Value | None, library: str = origin.OWN
) -> str:
  """For what differs in a static argument, or in the metadata of a node.

  Args:
    path: of it.
    was: the earlier value, if there was one.
    now: the value now, if there is one.
    library: the package of the jitted function, if a library's.
  """
  if was is None or now is None:
    return f"pass {path} in every call"
  parts = (*was.parts.values(), *now.parts.values())
  if was.is_by_identity or now.is_by_identity:
    return _made_anew(now, library)
  if parts and all(part.is_by_identity for part in parts):
    return MAKE_ONCE
  return _number(was, now) or NO_OTHER_WAY


def _made_anew(now: Value, library: str) -> str:
  if library != origin.OWN and library == _package(now.file or now.type_file):
    return ""  # a library makes it for a function of its own
  if _package(now.type_file) != origin.OWN:
    return MAKE_ONCE  # functions are: nobody gives theirs another equality
  return f"{MAKE_ONCE}, or give {now.type_name} `__eq__` and `__hash__`"


def _package(file: str) -> str | None:
  return origin.package_of(file) if file else None


def _number(was: Value, now: Value) -> str:
  if not {was.type_name, now.type_name} <= _NUMBERS:
    return ""
  how = {
      Where.STATIC: "pass it as an argument that is not static",
      Where.LEAF: "make it an array",
      Where.METADATA: "have it a leaf of the pytree, as an array",
  }[now.where]
  return (
      f"each value is compiled again: unless it sets a shape, {how}:"
      f" jnp.asarray({now.text})"
  )


def structure(
    path: str, was: Value | None, now: Value | None, is_own: bool
) -> str:
  """For what differs in how arguments are made up."""
  if was is None or now is None or was.type == "dict key":
    return "pass the same keys and as many elements in every call"
  if "None" in (was.type_name, now.type_name):
    if is_own and was.type_name == "None":
      return "start with an array, as it is returned with one"
    return "pass an array in every call"
  if was.is_node and now.is_node and was.type != now.type:
    return _container(path, was, now, is_own)
  return value(path, was, now)


def _container(path: str, was: Value, now: Value, is_own: bool) -> str:
  wanted = now if is_own else was
  when = "before the loop, as it is returned" if is_own else "in every call"
  if wanted.type_name in ("list", "tuple", "dict"):
    return f"pass a {wanted.type_name} {when}: {wanted.type_name}({path})"
  return f"pass a {wanted.type_name} {when}"


def config(setting: str, shown: str, code: str) -> str:
  if shown.startswith(("Mesh(", "(Mesh(", "AbstractMesh(")):
    return "enter the mesh once, before the first call"
  if not setting.startswith("jax_") or not code:
    return "set it once, before the first call"
  return f"set it before the first call: jax.config.update({setting!r}, {code})"
