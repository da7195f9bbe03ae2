"""kernels moe."""
