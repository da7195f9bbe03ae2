"""costmodel ops recurrent."""
