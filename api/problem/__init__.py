"""api problem."""
