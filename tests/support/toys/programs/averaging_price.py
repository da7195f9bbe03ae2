"""The price of averaging: n weights of a unit, a copy, a sum over replicas, a division and a move.

All of it once in ``every`` steps, in place of a sum of gradients in each. With R replicas a step's
mean saves (1 - 1/every) of the sums: for every = 4, three quarters.
"""

from __future__ import annotations

from toys.programs.averaging_value import NAME, TECHNIQUE, AveragedWeights

from shardwright.costmodel.program_technique import ProgramPrice
from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.param_groups import UnitShape, param_groups
from shardwright.costmodel.symbolic.tape import WorkItem
from shardwright.costmodel.technique import TechniquePrice, with_addition
from shardwright.spec.parallel.rank_groups import replica_group
from shardwright.spec.report.work_items import Collective, streamed
from shardwright.spec.workload.number_formats import DTYPE_BYTES

COUNT_BYTES = 8
"""Of the count of steps, one a layer."""


def unit(shape: UnitShape, own: FsdpUnit, value: AveragedWeights) -> FsdpUnit:
    """Sums over the replicas that the unit's reductions leave out."""
    replicas = replica_group(shape.strategy, shape.stage_ranks)
    shards = [n for group in param_groups(shape) if group.trained for n in group.shards]
    if replicas.size == 1 or not shards:
        return with_addition(own, NAME, resident_bytes=COUNT_BYTES)
    name, n, size = shape.dtype.master, sum(shards), DTYPE_BYTES[shape.dtype.master]
    items: list[WorkItem] = [
        streamed("copy", n, 2 * n * size, name),
        Collective("all_reduce", *replicas, n * size, name),
        streamed("div", n, 2 * n * size, name),
        *(streamed("lerp", shard, 3 * shard * size, name) for shard in shards),
    ]
    return with_addition(
        own, NAME, update=tuple(items), resident_bytes=COUNT_BYTES, every=value.every
    )


PRICE = TechniquePrice(value=TECHNIQUE, at_least="work", program=ProgramPrice(unit=unit))
