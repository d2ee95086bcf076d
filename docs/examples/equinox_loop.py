"""An Equinox training loop whose state carries a PRNG key, on a mesh of two devices.

python docs/examples/equinox_loop.py
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS = 6


class State(eqx.Module):
    """What a step takes and returns."""

    model: eqx.nn.MLP
    key: jax.Array


def loss(model: eqx.nn.MLP, x: jax.Array, key: jax.Array) -> jax.Array:
    noisy = x + 0.1 * jax.random.normal(key, x.shape)
    return jnp.mean((jax.vmap(model)(noisy) - x) ** 2)


def main() -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    everywhere = NamedSharding(mesh, P())
    state = State(eqx.nn.MLP(4, 4, 8, 1, key=jax.random.key(0)), jax.random.key(1))
    arrays, static = eqx.partition(state, eqx.is_array)
    arrays = jax.device_put(arrays, everywhere)
    x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("data")))

    @jax.jit
    def step(arrays: State, x: jax.Array) -> tuple[State, jax.Array]:
        state = eqx.combine(arrays, static)
        key, noise = jax.random.split(state.key)
        value, grads = eqx.filter_value_and_grad(loss)(state.model, x, noise)
        model = eqx.apply_updates(state.model, jax.tree.map(lambda g: -0.1 * g, grads))
        return eqx.filter(State(model, key), eqx.is_array), value

    for _ in range(STEPS):
        arrays, value = step(arrays, x)
    print(f"loss {value:.4f}")


if __name__ == "__main__":
    main()
