"""What the README and the pages of docs/ show as figures. `figures` has the contract."""
