"""costmodel memory."""
