"""executor groups."""
