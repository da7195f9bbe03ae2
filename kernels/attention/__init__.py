"""kernels attention."""
