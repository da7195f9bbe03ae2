"""api doctor."""
