"""What runs our wheel: the demo, the tests, and the tests of JAX."""
