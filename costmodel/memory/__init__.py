"""Peak memory of a stage on every tier, and its feasibility.

Enters: a plan, its lowered chunks and passes, the framework profile, a calibration. Leaves:
``MemoryRow`` per stage, device group and tier; ``MemoryRule`` to accept or refuse it. Imports:
spec, datasets; costmodel.symbolic, sharding, lowering, technique.
"""
