"""api terminal."""
