"""costmodel symbolic."""
