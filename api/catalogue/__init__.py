"""api catalogue."""
