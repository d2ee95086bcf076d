"""The tests' own extended dtypes: a PRNG with keys of three words, and a dtype without a PRNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax._src import core, dtypes, sharding_impls, tree_util
from jax._src.earray import EArray
from jax._src.interpreters import pxla
from jax.sharding import NamedSharding, Sharding
from jax.sharding import PartitionSpec as P

WORDS = 3  # no other PRNG has keys of this length
TILE = (2, 3)  # the trailing dimensions of a tile's base array


def words(value: Any) -> jax.Array:
    return jnp.asarray(value).astype(jnp.uint32) + jnp.arange(WORDS, dtype=jnp.uint32)


def split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    count = jnp.arange(1, 1 + np.prod(shape, dtype=int), dtype=jnp.uint32)
    return count.reshape(*shape, 1) * jnp.uint32(2654435761) + key


def fold_in(key: jax.Array, data: Any) -> jax.Array:
    return key * jnp.uint32(3) + words(data)


def random_bits(key: jax.Array, bit_width: int, shape: Sequence[int]) -> jax.Array:
    bits = jnp.arange(np.prod(shape, dtype=int), dtype=jnp.uint32).reshape(shape) + key.sum()
    return bits.astype(f"uint{bit_width}")


THREE_WORDS = jax.extend.random.define_prng_impl(
    key_shape=(WORDS,), seed=words, split=split, random_bits=random_bits, fold_in=fold_in,
    name="three_words", tag="w3",
)  # fmt: skip


def impl_of(name: str) -> Any:
    """The argument for `jax.random` that means one of its PRNGs or this module's."""
    return THREE_WORDS if name == "three_words" else name


class TileRules:
    """What jax requires of an extended dtype that passes through a jitted function."""

    @staticmethod
    def physical_element_aval(dtype: Any) -> Any:
        return core.ShapedArray(TILE, np.dtype(np.float32))

    @staticmethod
    def global_sharded_result_handler(aval: Any, out_sharding: Sharding, committed: bool) -> Any:
        physical = core.physical_aval(aval)
        sharding = sharding_impls.physical_sharding(aval, out_sharding)
        make = pxla.global_result_handlers[core.ShapedArray](physical, sharding, committed)

        def wrapped(made: Any) -> Any:
            return aval.dtype.array_type(aval, made)

        # Handlers became objects after 0.6.
        return make.wrap(wrapped) if hasattr(make, "wrap") else lambda bufs: wrapped(make(bufs))


class TileDType(dtypes.ExtendedDType):
    """An element is a small float32 matrix. Two dtypes are equal if they make the same arrays."""

    type = dtypes.extended
    name = "tile"
    itemsize = 4 * int(np.prod(TILE))
    _rules = TileRules

    def __init__(self, array_type: type) -> None:
        self.array_type = array_type

    def __hash__(self) -> int:
        return hash(self.array_type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileDType) and self.array_type is other.array_type

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


TILES = TileDType(EArray)  # EArray is jax's own array type for any extended dtype


def tiles(shape: tuple[int, ...], sharding: NamedSharding, dtype: TileDType = TILES) -> Any:
    """An array of tiles. `sharding` is that of its base array."""
    values = np.arange(np.prod(shape + TILE, dtype=int), dtype=np.float32).reshape(shape + TILE)
    # The type that jax gives an array on such a mesh. Another type would cause another trace.
    in_type = NamedSharding(sharding.mesh.abstract_mesh, P(*[None] * len(shape)))
    aval = core.ShapedArray(shape, dtype, sharding=in_type)
    return dtype.array_type(aval, jax.device_put(values, sharding))


def dtype_of_arrays(flatten: Callable[[Any], tuple[tuple[Any, ...], Any]]) -> TileDType:
    """A new tile dtype, whose arrays the dispatch registry flattens in the given way."""

    class Array(EArray):
        __slots__ = ("armed",)

    def shards_of(xs: Any, shardings: Any, *rest: Any) -> Any:
        physical = [sharding_impls.physical_sharding(x.aval, s) for x, s in zip(xs, shardings)]
        return pxla.shard_args(physical, *rest, [x._data for x in xs])

    pxla.shard_arg_handlers[Array] = shards_of
    core.pytype_aval_mappings[Array] = lambda x: x.aval
    register_as_canonical(Array)
    tree_util.dispatch_registry.register_node(
        Array, flatten, lambda aval, bases: Array(aval, bases[0])
    )
    return TileDType(Array)


def register_as_canonical(array_type: type) -> None:
    """Tells jax that values of the type need no conversion. The way depends on the release."""
    if hasattr(dtypes, "register_canonicalize_value_handler"):
        dtypes.register_canonicalize_value_handler(array_type, None)
    elif hasattr(dtypes, "canonicalize_value_handlers"):
        dtypes.canonicalize_value_handlers[array_type] = lambda x: x
    else:
        from jax._src.interpreters import xla

        xla.canonicalize_dtype_handlers[array_type] = lambda x: x
