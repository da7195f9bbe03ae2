"""executor stage."""
