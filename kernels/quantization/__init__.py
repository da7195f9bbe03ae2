"""Quantization kernels."""
