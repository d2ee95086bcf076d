"""`jax.monitoring.clear_event_listeners()` is public: a compilation after it is still a
compilation."""

import jax
import jax.monitoring
import jaxlib.pjit

first, second = jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)
with jaxlib.pjit.explain():
    first(1.0)
jax.monitoring.clear_event_listeners()
with jaxlib.pjit.explain() as misses:
    second(1.0), second(1)
print(*misses, sep="\n")
