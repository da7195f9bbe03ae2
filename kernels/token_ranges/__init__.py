"""Token-range kernels."""
