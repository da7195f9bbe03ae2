"""costmodel simulation."""
