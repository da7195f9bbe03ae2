"""Checkpoints of the transformers library: what their tensors are called, read and written."""
