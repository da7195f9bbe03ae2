"""spec model."""
