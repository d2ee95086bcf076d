"""What this machine has: its Pythons, its system packages, and environments made on it."""
