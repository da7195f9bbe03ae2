"""api views."""
