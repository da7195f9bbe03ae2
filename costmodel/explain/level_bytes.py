"""Bytes that a rank sends over each link level in a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ...spec.cluster.stack_spec import StackSpec
from ...spec.plan.plan import LayerPlan, Plan, Stage
from ...spec.report.sent_bytes import sent_bytes
from ...spec.report.work_items import Collective
from ..lowering.step_work import step_work
from ..technique import TechniquePrices

FEW = 2
"""Micro-batches of a step that is counted: bytes are affine in their number from there on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelBytes:
    """Bytes of a step over a link level.

    ``sent_bytes``: of the first rank of the stage that sends most. ``plain_bytes``: the same of the
    plan without its techniques; None where it has none.
    """

    level: str
    sent_bytes: int
    plain_bytes: int | None = None


def level_bytes(
    plan: Plan, stack: StackSpec, techniques: TechniquePrices
) -> tuple[LevelBytes, ...]:
    """Bytes over each level that is used, innermost first; empty on several device groups."""
    if len(plan.cluster.groups) > 1:
        return ()
    sent, plain = _most_sent(plan, stack, techniques), None
    if _has_techniques(plan):
        plain = _most_sent(_without_techniques(plan), stack, techniques)
    return tuple(
        LevelBytes(
            level=level.level,
            sent_bytes=sent[level.level],
            plain_bytes=None if plain is None else plain[level.level],
        )
        for level in plan.cluster.levels
        if sent[level.level] or (plain is not None and plain[level.level])
    )


def _most_sent(plan: Plan, stack: StackSpec, techniques: TechniquePrices) -> Counter[str]:
    most: Counter[str] = Counter()
    for number in range(len(plan.program.stages)):
        most |= _sent_by_stage(plan, stack, number, techniques)
    return most


def _sent_by_stage(
    plan: Plan, stack: StackSpec, number: int, techniques: TechniquePrices
) -> Counter[str]:
    schedule = plan.program.schedule
    more_than_few = schedule.microbatches - FEW
    if more_than_few <= 1 or schedule.actions is not None:  # those are spelled out for all
        return _sent(plan, stack, number, techniques)
    few = _sent(plan.with_microbatches(FEW), stack, number, techniques)
    more = _sent(plan.with_microbatches(FEW + 1), stack, number, techniques)
    return Counter(
        {level: few[level] + more_than_few * (more[level] - few[level]) for level in more}
    )


def _sent(plan: Plan, stack: StackSpec, number: int, techniques: TechniquePrices) -> Counter[str]:
    work = step_work(plan, stack, number, techniques)
    items = [item for item in work if isinstance(item, Collective)]
    return Counter(sent_bytes(items, plan.cluster, plan.program.stages[number], 0))


def _has_techniques(plan: Plan) -> bool:
    return bool(plan.program.techniques) or any(s.techniques for s in plan.layer_strategies())


def _without_techniques(plan: Plan) -> Plan:
    program = plan.program
    stages = tuple(_plain_stage(stage) for stage in program.stages)
    return replace(plan, programs=(replace(program, stages=stages, techniques={}),))


def _plain_stage(stage: Stage) -> Stage:
    chunks = tuple(tuple(_plain(part) for part in parts) for parts in stage.virtual_stages)
    return replace(stage, virtual_stages=chunks)


def _plain(part: LayerPlan) -> LayerPlan:
    return replace(part, strategy=replace(part.strategy, techniques={}))


__all__ = ["LevelBytes", "level_bytes"]
