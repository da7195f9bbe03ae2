"""kernels quantization."""
