"""The tests of what the wheel promises, which need only jax, pytest and cloudpickle.

They need no Flax, which may not support a new or rare Python yet, and no second environment with a
stock jaxlib.
"""

from __future__ import annotations

_NAMES = (
    *("distributed", "explain_misses", "extended_dtype", "faults", "fed_back_key", "lifetime"),
    *("pickle", "pjit_signature", "plain_outputs", "reproduction", "routes", "spelling", "switch"),
    "threads",
)
CHECK = "key tests"
FILES = [f"tests/{name}_test.py" for name in _NAMES]
# Arguments that run them with two processes, and leave no file in the repository.
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile")
