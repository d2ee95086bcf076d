"""What the wheel promises, tested with only jax, pytest and cloudpickle.

No Flax, which a new or rare Python may not have yet, and no second environment with a stock jaxlib.
"""

from __future__ import annotations

_NAMES = (
    *("distributed", "explain_misses", "extended_dtype", "faults", "fed_back_key", "lifetime"),
    *("pickle", "pjit_signature", "plain_outputs", "reproduction", "routes", "spelling", "switch"),
    "threads",
)
CHECK = "key tests"
FILES = [f"tests/{name}_test.py" for name in _NAMES]
# What pytest runs them with: a run that nothing of this repository's own is written in.
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile")
