"""executor host."""
