"""From a stock jaxlib wheel to ours. Knows wheels, and nothing of shardings."""
