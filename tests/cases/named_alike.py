"""Two functions of one name, each jitted once by a library's wrapper: they are not one
function jitted again."""

import equinox as eqx
import jax.numpy as jnp


def train():
    @eqx.filter_jit
    def step(w):
        return w * 0.9

    return step


def evaluate():
    @eqx.filter_jit
    def step(w):
        return w.sum()

    return step


t, e = train(), evaluate()
w = jnp.ones(3)
for _ in range(5):
    w = t(w)
    e(w)
