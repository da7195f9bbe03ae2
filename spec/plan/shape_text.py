"""A plan in one line of text."""

from __future__ import annotations

from collections.abc import Iterable

from ..strategy import LayerStrategy
from ..technique import OFF, Values
from ..techniques import TECHNIQUES
from .plan import Plan


def shape_text(plan: Plan, techniques: Values = TECHNIQUES) -> str:
    """Format a plan in one line.

    For example ``tp 4, pp 4, dp 2, zero1, 1f1b, micro-batch 1 x 256``.
    """
    program = plan.program
    placed = [
        (part.strategy, program.stages[stage].device_count)
        for stage, _, parts in program.chunks()
        for part in parts
    ]
    every = [strategy for strategy, _ in placed]
    parts = [
        f"tp {several(f'{s.tp} ulysses' if s.ulysses else s.tp for s in every)}",
        f"pp {len(program.stages)}",
        f"dp {several(s.data_parallel(ranks) for s, ranks in placed)}",
        several(s.shard.level_name(s.state_ranks(ranks)) for s, ranks in placed),
    ]
    if any(s.cp > 1 for s in every):
        parts.insert(2, f"cp {several(s.cp for s in every)}")
    experts = [expert_text(s) for s in every if (s.ep, s.etp) != (1, 1)]
    if experts:
        parts.insert(len(parts) - 1, several(experts))
    recomputes = {s.recompute for s in every} - {"none"}
    if recomputes:
        parts.append("recompute " + "/".join(sorted(recomputes)))
    for technique in techniques:
        words = {technique.text_of(s) for s in every}
        if used := (words | {technique.text_in_program(program.techniques)}) - {OFF}:
            parts.append(f"{technique.name} " + "/".join(sorted(used)))
    if program.chunks_per_stage > 1:
        parts.insert(2, f"vpp {program.chunks_per_stage}")
    if len(program.stages) > 1:
        parts.append(program.schedule.kind)
    schedule = program.schedule
    return ", ".join([*parts, f"micro-batch {schedule.micro_batch} x {schedule.microbatches}"])


def several(values: Iterable[object]) -> str:
    """Format distinct values in order, as ``zero1/zero2`` or ``1/2/8 and zero2``."""
    texts = dict.fromkeys(str(value) for value in values)
    return (" and " if any("/" in text for text in texts) else "/").join(texts)


def expert_text(strategy: LayerStrategy) -> str:
    """Format an expert split: ``ep 8`` or ``ep 4 x etp 2``."""
    return f"ep {strategy.ep}" + (f" x etp {strategy.etp}" if strategy.etp > 1 else "")
