"""spec rules."""
