"""Gradient sums of relative position tables copied to several chunks."""

from __future__ import annotations

from ...spec.model.layer_parameters import layer_parameters
from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import TABLE, bias_holders
from ...spec.report.work_items import Collective, streamed
from ...spec.strategy import LayerStrategy
from ...spec.workload.number_formats import DTYPE_BYTES
from ..symbolic.tape import WorkItem
from .tied_embeddings import table_group


def tied_bias_reductions(plan: Plan, stage: int) -> tuple[tuple[WorkItem, ...], int]:
    """Gradient sums on a stage's rank, and elements excluded from its norm.

    Copies on one stage are added there first, and each gets the sum.
    """
    dtype, excluded = plan.workload.dtype.master, 0
    work: list[WorkItem] = []
    trainings = plan.workload.layer_trainings(plan.model)
    strategies, itemsize = plan.layer_strategies(), DTYPE_BYTES[dtype]
    for block, holders in bias_holders(plan).items():
        local_holders = [index for number, index in holders if number == stage]
        stages = tuple(sorted({number for number, _ in holders}))
        if not local_holders or not trainings[block].weights:
            continue
        elements = _table_shard(plan, block, strategies[block])
        traffic_bytes = (3 * elements * itemsize, 2 * elements * itemsize)
        copies = len(local_holders) - 1
        work += [streamed("add", elements, traffic_bytes[0], dtype)] * copies
        if len(stages) > 1:
            group = table_group(plan, stages)
            work.append(Collective("all_reduce", *group, elements * itemsize, dtype))
        work += [streamed("copy", elements, traffic_bytes[1], dtype)] * copies
        excluded += elements * (len(local_holders) - (block in local_holders))
    return tuple(work), excluded


def _table_shard(plan: Plan, block: int, strategy: LayerStrategy) -> int:
    specs = layer_parameters(plan.model.layers()[block])
    rows, heads = next(s for s in specs if s.name == TABLE).local_shape(strategy.weight_split)
    return -(-rows // strategy.shard.optimizer) * heads
