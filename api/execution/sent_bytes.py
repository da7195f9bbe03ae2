"""What ranks sent over each link level, beside what is priced."""

from __future__ import annotations

from collections.abc import Sequence

from ...costmodel.lowering.step_work import step_work
from ...spec.cluster.stack_spec import StackSpec
from ...spec.plan.plan import Plan
from ...spec.report.sent_bytes import sent_bytes
from ...spec.report.work_items import Collective


def sent_beside_priced(
    plan: Plan, stack: StackSpec, sent: Sequence[dict[str, int]]
) -> dict[str, dict[str, list[int]]]:
    """Bytes of a step by link level, innermost first: each rank's, measured and predicted.

    Args:
        plan: that ran, on one device group.
        stack: that it is priced with.
        sent: each rank's bytes by level.
    """
    priced: list[dict[str, int]] = []
    for number, stage in enumerate(plan.program.stages):
        work = step_work(plan, stack, number)
        items = [item for item in work if isinstance(item, Collective)]
        priced += [
            sent_bytes(items, plan.cluster, stage, position)
            for position in range(stage.device_count)
        ]
    levels = [level.level for level in plan.cluster.levels]
    return {
        level: {
            "predicted": [rank.get(level, 0) for rank in priced],
            "measured": [rank.get(level, 0) for rank in sent],
        }
        for level in levels
        if any(level in rank for rank in (*priced, *sent))
    }
