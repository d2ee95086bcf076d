"""Compiled ahead of time for a batch without a sharding, then called with a sharded one: a
second compilation."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
step = jax.jit(lambda w, batch: w - 0.1 * batch["x"].mean())
w = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P()))
step.lower(w, {"x": jax.ShapeDtypeStruct((8, 8), jnp.float32)}).compile()
for i in range(4):
    w = step(
        w, {"x": jax.device_put(np.full((8, 8), i, np.float32), NamedSharding(mesh, P("data")))}
    )
