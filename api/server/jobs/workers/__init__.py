"""api server jobs workers."""
