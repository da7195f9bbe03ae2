"""Lowering of layers and plans to kernels, collectives and live bytes.

Enters: a model, workload, framework profile, techniques' prices, and a plan or strategies. Leaves:
``LoweredLayer``, ``StageChunk`` with its FSDP units, work of a step, model FLOPs. Imports: spec;
costmodel.symbolic, ops, layers, sharding, technique, techniques.
"""
