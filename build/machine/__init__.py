"""This machine: its Pythons, system packages and GPUs, and the environments made on it."""
