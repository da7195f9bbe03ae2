"""executor reference."""
