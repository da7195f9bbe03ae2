"""api server compute."""
