"""api cli."""
