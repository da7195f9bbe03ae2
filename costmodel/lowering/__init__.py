"""Lowering: layers and plans become kernels, collectives and live bytes of a micro-batch or a step.

Enters: a model, workload, framework profile, techniques' prices, and a plan or strategies. Leaves:
``LoweredLayer``, ``StageChunk`` with its FSDP units, work of a step, model FLOPs. Imports: spec;
costmodel.symbolic, ops, layers, sharding, technique, techniques.
"""
