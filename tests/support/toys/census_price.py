"""The price of a census.

Symbols: n local gradient elements of a layer, p ranks of its stage.
Cost once a step: ``each`` reads 4n bytes and sums 4 bytes over p ranks; ``held`` reads 8n and
writes 4n bytes, and with the update reads and writes 4n. State: 4 or 4n bytes.
"""

from __future__ import annotations

from toys.census_value import NAME, TECHNIQUE, groups, mode_of

from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.param_groups import UnitShape, param_groups
from shardwright.costmodel.technique import AddedWork, TechniquePrice, with_addition
from shardwright.spec.report.work_items import Collective, streamed
from shardwright.spec.workload.number_formats import DTYPE_BYTES


def unit(shape: UnitShape, own: FsdpUnit) -> FsdpUnit:
    """A layer's states with a census of their gradients."""
    master = shape.dtype.master
    elements = sum(part.shard for part in param_groups(shape) if part.trained)
    size = elements * DTYPE_BYTES[master]
    if mode_of(shape.strategy) == "held":
        adds = streamed("foreach_addcmul", elements, 3 * size, master)
        fades = streamed("foreach_mul", elements, 2 * size, master)
        return with_addition(own, NAME, AddedWork(items=(adds,)), (fades,), resident_bytes=size)
    counts = streamed("foreach_norm", elements, size, master)
    sums = tuple(
        Collective("all_reduce", *group, DTYPE_BYTES[master], master)
        for group in groups(shape.strategy, shape.stage_ranks)
        if group.size > 1
    )
    added = AddedWork(items=(counts, *sums), scratch_bytes=DTYPE_BYTES[master])
    return with_addition(own, NAME, added, resident_bytes=DTYPE_BYTES[master])


PRICE = TechniquePrice(value=TECHNIQUE, unit=unit)
