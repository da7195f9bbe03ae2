"""datasets models."""
