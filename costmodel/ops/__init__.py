"""costmodel ops."""
