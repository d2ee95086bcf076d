"""Two callable objects whose __call__ is inherited, each jitted once."""

import jax
import jax.numpy as jnp


class Layer:
    def __call__(self, x):
        return self.forward(x)


class Double(Layer):
    def forward(self, x):
        return x * 2


class Total(Layer):
    def forward(self, x):
        return x.sum()


double, total = jax.jit(Double()), jax.jit(Total())
x = jnp.ones(3)
for _ in range(3):
    double(x), total(x)
