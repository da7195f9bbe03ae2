"""Device kernels, one family per file, each with a reference."""
