"""kernels dense."""
