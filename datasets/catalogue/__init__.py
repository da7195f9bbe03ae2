"""Devices, nodes, fabrics, stacks and models, every figure with its source."""
