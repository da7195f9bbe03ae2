"""api html."""
