"""The change to the sources of jaxlib itself."""
