"""spec parallel."""
