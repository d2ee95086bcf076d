"""Simulates, on a stock jaxlib of 0.10 or later, the comparison that the port puts into jaxlib.

    python tests/simulated_comparison.py PROGRAM [ARGUMENT ...]
    PYTHONPATH=tests python -m pytest -p simulated_comparison ...

Since 0.10, a PartitionSpec is a Python object without its own `__eq__`, and jaxlib's
`EqualShardingsForJit` compares two of them with Python's `==`. This module gives the class an
`__eq__`: two specs are equal if they say the same on every mesh on which both have a NamedSharding.
jaxlib itself compares the mesh before that, and everything else after it.

Limits: no C++ of the port runs. A comparison in Python code (`==`, `in`) is recognised by the
caller's instruction, and gets the usual answer. A comparison by C code on Python's behalf
(`list.index`, `operator.eq`, a dict key with the same hash) is not recognised, and gets the lenient
answer. JAX's own caches use hashes, which do not change. The time of a call means nothing.
"""

from __future__ import annotations

import dis
import functools
import runpy
import sys
import types
from typing import Any

import jax
from jax._src import named_sharding
from jax.sharding import PartitionSpec as P

_PYTHON_ASKS = ("COMPARE_OP", "CONTAINS_OP")
_meshes: dict[
    int, dict[int, Any]
] = {}  # the meshes of a spec's NamedShardings, by the ids of spec and mesh
_kept: list[P] = []  # keeps the specs alive, so that no id is reused


@functools.cache
def canonical(spec: P, mesh: Any) -> tuple[Any, ...]:
    """What the spec says on a mesh: `CanonicalSpec` of jaxlib/canonical_spec.h, in Python."""

    def says_nothing(axis: Any) -> bool:
        return mesh.shape.get(axis) == 1 and axis not in mesh.explicit_axes

    entries = []
    for entry in spec._partitions:
        axes = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
        entries.append(tuple(axis for axis in axes if not says_nothing(axis)))
    while entries and not entries[-1]:
        entries.pop()
    return tuple(entries), spec.unreduced, spec.reduced, getattr(spec, "unreduced_kind", None)


def _record(mesh: Any, spec: P) -> None:
    if id(spec) not in _meshes:
        _kept.append(spec)
    _meshes.setdefault(id(spec), {})[id(mesh)] = mesh


def _equal(a: P, b: object) -> Any:
    if a is b:
        return True
    if not isinstance(b, P) or _python_asks(sys._getframe(1)):
        return NotImplemented
    shared = _meshes.get(id(a), {}).keys() & _meshes.get(id(b), {}).keys()
    said_alike = [
        canonical(a, _meshes[id(a)][i]) == canonical(b, _meshes[id(a)][i]) for i in shared
    ]
    return bool(said_alike) and all(said_alike)


def _python_asks(frame: types.FrameType) -> bool:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in _PYTHON_ASKS


def _recording_check(mesh, spec, _manual_axes=frozenset()):  # type: ignore[no-untyped-def]
    _record(mesh, spec)
    _check(mesh, spec, _manual_axes)  # noqa: F821


def _install() -> None:
    if jax.__version_info__ < (0, 10):
        raise SystemExit("simulated_comparison: jax is older than 0.10, and compares specs in C++")
    # NamedSharding's constructor in C++ already holds this function, so its code is replaced.
    check = named_sharding.check_pspec.__wrapped__
    named_sharding._record = _record
    named_sharding._check = types.FunctionType(check.__code__, vars(named_sharding))
    check.__code__ = _recording_check.__code__
    named_sharding.check_pspec.cache_clear()
    P.__eq__, hash_ = _equal, P.__hash__
    P.__hash__ = hash_


_install()

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
