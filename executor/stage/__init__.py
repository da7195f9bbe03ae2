"""Chunks of a stage: layers built, filled, split and sharded.

Enters: a plan, ``BuildOptions``, ``ProcessGroups``, initial weights.
Leaves: ``Chunk``, ``ChunkBackward``, ``LocalParameter``.
Imports: spec, kernels, ``torch_compat``, ``technique``, ``models``, ``groups``.
"""
