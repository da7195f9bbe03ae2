"""costmodel explain."""
