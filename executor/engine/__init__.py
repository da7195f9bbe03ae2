"""executor engine."""
