"""api server openapi."""
