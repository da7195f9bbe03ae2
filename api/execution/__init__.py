"""api execution."""
