"""Chunks of a stage: layers built, filled, split, sharded; their parameters and technique hooks.

Enters: a plan, ``BuildOptions``, ``ProcessGroups``, initial weights.
Leaves: ``Chunk``, ``ChunkBackward``, ``LocalParameter``.
Imports: spec, kernels, ``torch_compat``, ``technique``, ``models``, ``groups``.
"""
