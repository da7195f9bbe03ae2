"""Dense-layer kernels."""
