"""Classes of ranks with equal work: one per stage and device group.

Device groups of a stage meet wherever the stage passes anything on: a message needs all samples of
its micro-batch, a reduction all ranks. So every pass of a stage takes as long as that of its
slowest class, and gains of a class in one pass do not offset losses in another. Each class has its
own memory.

Where a load of experts is not even, a class stands for its fullest rank: layers carry their bucket
of it (:mod:`~shardwright.spec.workload.expert_load`), in the time at the median of steps and in the
memory at their 95th percentile. All ranks of an exchange wait for that one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ..lowering.chunk import StageChunk
from ..pricing.link_span import LinkSpan

MAX_CLASSES = 2**14
"""Classes of one plan; each is lowered and priced separately."""


@dataclass(frozen=True, slots=True)
class RankClass:
    """Ranks of one device group of a stage: chunks and link span."""

    group: str
    count: int
    chunks: tuple[StageChunk, ...]
    link_span: LinkSpan


def refuse_too_many(plan: Plan) -> None:
    """Refuse a plan with too many classes instead of averaging them.

    Raises:
        InputError: more than ``MAX_CLASSES``.
    """
    classes = sum(len(stage.devices) for stage in plan.program.stages)
    if classes > MAX_CLASSES:
        description = f"{classes} classes of ranks (stage, device group)"
        raise InputError("stages", description, f"at most {MAX_CLASSES}", MAX_CLASSES)
