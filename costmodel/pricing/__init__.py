"""costmodel pricing."""
