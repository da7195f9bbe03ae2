"""Complexity of a plan, by which equally good plans are ordered.

Fewest uniform strategies; fewest kinds of parallelism; even stages; a schedule that every stack
has; fewest chunks; some memory to spare. Among equals the best value decides.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.plan.uniform_strategy import strategy_count
from .evaluator import Outcome

FULL_MEMORY = 0.93
"""Share of a device's memory above which a plan is fragile: a slight misprediction breaks it."""
USUAL_SCHEDULES = ("gpipe", "1f1b", "interleaved")


class Complexity(NamedTuple):
    """Complexity of a plan, the least is the simplest.

    ``kinds``: of parallelism: data, tensor, sequence, context, expert, pipeline. ``uneven``: blocks
    of the fullest chunk over those of the emptiest, one of them free. ``schedule``: 0 for GPipe and
    1F1B, 1 interleaved, 2 others. ``whole_sequences``: tensor parallelism that leaves activations
    whole, which its users split. ``fills_memory``: True above ``FULL_MEMORY``.
    """

    strategies: int
    kinds: int
    uneven: int
    schedule: int
    chunks: int
    whole_sequences: bool
    fills_memory: bool


def complexity(outcome: Outcome) -> Complexity:
    """Complexity of a simulated plan."""
    shape, strategies = outcome.decision.shape, set(outcome.decision.strategies)
    layers = outcome.plan.models["main"].layers()
    blocks = outcome.chunk_blocks
    return Complexity(
        strategies=strategy_count(layers, outcome.decision.strategies),
        kinds=len(parallelisms(outcome)),
        uneven=max(0, max(blocks) - min(blocks) - 1),
        schedule=USUAL_SCHEDULES.index(shape.kind) - 1 if shape.kind in USUAL_SCHEDULES[1:] else 2,
        chunks=shape.chunks,
        whole_sequences=any(s.weight_split > 1 and not s.megatron_sp for s in strategies),
        fills_memory=memory_share(outcome) > FULL_MEMORY,
    )


def parallelisms(outcome: Outcome) -> tuple[str, ...]:
    """Kinds of parallelism of a plan."""
    shape, strategies = outcome.decision.shape, set(outcome.decision.strategies)
    stages = outcome.plan.programs[0].stages
    kinds = {
        "pipeline": shape.stages > 1,
        "tensor": any(s.weight_split > 1 for s in strategies),
        "sequence": any(s.ulysses for s in strategies),
        "context": any(s.cp > 1 for s in strategies),
        "expert": any(s.ep > 1 for s in strategies),
        "data": any(
            s.data_parallel(stage.device_count) > 1 for s in strategies for stage in stages
        ),
    }
    return tuple(kind for kind, present in kinds.items() if present)


def memory_share(outcome: Outcome) -> float:
    """Reserved share of the fullest memory of a plan."""
    rows = outcome.simulation.memory
    return max(row.reserved_bytes / row.capacity_bytes for row in rows if row.capacity_bytes)
