"""Runs our wheel: the demo, our tests, JAX's own tests, and load."""
