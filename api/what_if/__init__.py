"""api what_if."""
