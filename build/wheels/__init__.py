"""Makes our wheel from a stock jaxlib wheel. Knows wheels, and nothing about shardings."""
