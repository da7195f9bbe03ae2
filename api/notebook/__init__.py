"""api notebook."""
