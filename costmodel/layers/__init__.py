"""costmodel layers."""
