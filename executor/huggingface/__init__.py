"""Checkpoints of the transformers library: tensor names, reading, writing."""
