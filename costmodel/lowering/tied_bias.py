"""Sums of the gradients of tables of relative positions that chunks have copies of."""

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
    """The sums on a rank of a stage, and how many elements norms leave to other copies.

    Copies on one stage are added there, and each has the sum in the end; stages sum theirs.
    """
    dtype, left = plan.workload.dtype.master, 0
    work: list[WorkItem] = []
    trainings = plan.workload.layer_trainings(plan.model)
    strategies, itemsize = plan.layer_strategies(), DTYPE_BYTES[dtype]
    for block, held in bias_holders(plan).items():
        own = [index for number, index in held if number == stage]
        stages = tuple(sorted({number for number, _ in held}))
        if not own or not trainings[block].weights:
            continue
        elements = _table_shard(plan, block, strategies[block])
        each = (3 * elements * itemsize, 2 * elements * itemsize)
        copies = len(own) - 1
        work += [streamed("add", elements, each[0], dtype)] * copies
        if len(stages) > 1:
            group = table_group(plan, stages)
            work.append(Collective("all_reduce", *group, elements * itemsize, dtype))
        work += [streamed("copy", elements, each[1], dtype)] * copies
        left += elements * (len(own) - (block in own))
    return tuple(work), left


def _table_shard(plan: Plan, block: int, strategy: LayerStrategy) -> int:
    """Elements of a rank's part of the table of relative positions of a block."""
    specs = layer_parameters(plan.model.layers()[block])
    rows, heads = next(s for s in specs if s.name == TABLE).local_shape(strategy.weight_split)
    return -(-rows // strategy.shard.optimizer) * heads
