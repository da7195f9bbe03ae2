"""Symbolic execution of layers: tensors without data, a tape of their work and bytes.

Enters: operations of ``ops`` and ``layers`` on symbolic tensors. Leaves: ``Tape`` entries,
``LoweredPass``, ``LayerShape``. Imports: spec; no other room of costmodel.
"""
