"""executor data."""
