"""A loop that feeds a key back, on as many devices as there are."""

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


def main():
    state = {"rng": jax.device_put(jax.random.key(0), NamedSharding(mesh, P()))}

    @jax.jit
    def step(state):
        return {"rng": jax.random.split(state["rng"])[0]}

    for _ in range(5):
        state = step(state)


main()
