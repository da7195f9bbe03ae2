"""api planning."""
