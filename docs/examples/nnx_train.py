"""A Flax NNX training loop with dropout, its Rngs on a mesh of two devices.

python docs/examples/nnx_train.py
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS = 6


class Model(nnx.Module):
    """Two layers with dropout between them, which draws from a stream of keys."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.inner = nnx.Linear(4, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.outer = nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.outer(self.dropout(nnx.relu(self.inner(x))))


def main() -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    graph, state = nnx.split(Model(nnx.Rngs(0)))
    state = jax.device_put(state, NamedSharding(mesh, P()))
    x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("data")))

    @jax.jit
    def step(state: nnx.State, x: jax.Array) -> tuple[nnx.State, jax.Array]:
        model = nnx.merge(graph, state)
        value, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - x) ** 2))(model)
        params = nnx.state(model, nnx.Param)
        nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads))
        return nnx.state(model), value

    for _ in range(STEPS):
        state, value = step(state, x)
    print(f"loss {value:.4f}")


if __name__ == "__main__":
    main()
