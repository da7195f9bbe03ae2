"""costmodel lowering."""
