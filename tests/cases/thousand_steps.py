"""A guarded loop of 1,000 steps that never takes the fastpath: one message, and how often."""

import jax
import jax.numpy as jnp
import jaxlib.pjit


@jax.jit
def step(x):
    jax.debug.callback(lambda v: None, x.sum())
    return x * 2


x = step(jnp.ones(8))
try:
    with jaxlib.pjit.assert_no_misses():
        for _ in range(1000):
            x = step(x)
except AssertionError as error:
    print(len(str(error)), "characters")
