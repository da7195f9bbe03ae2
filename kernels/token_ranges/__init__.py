"""kernels token_ranges."""
