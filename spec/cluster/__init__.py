"""spec cluster."""
