"""Device code: a family a file, each with its reference."""
