"""Symbolic execution of layers: tensors without data, a tape of work.

Enters: operations of ``ops`` and ``layers`` on symbolic tensors. Leaves: ``Tape`` entries,
``LoweredPass``, ``LayerShape``. Imports: spec; for types only, technique.
"""
