"""api validation."""
