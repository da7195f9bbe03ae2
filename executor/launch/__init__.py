"""executor launch."""
