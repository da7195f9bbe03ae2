"""api server jobs routes."""
