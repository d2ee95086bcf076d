"""The figures in the README and in docs/. `figures` has the contract."""
