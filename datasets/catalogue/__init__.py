"""Devices, nodes, fabrics and stacks, every figure with its source.

Enters: the TOML tables beside it, names as typed, this machine's processor and memory.
Leaves: ``Device``, ``Node``, ``Fabric``, ``LinkRates``, stacks; strictly read documents.
Imports: spec.
"""
