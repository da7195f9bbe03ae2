"""Rows that a rank exchanges at each end of a chunk.

Derived from the plan alone, so every rank knows all message shapes before the first step. Needs no
torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...spec.parallel.batch_partition import IndexRange
from ...spec.parallel.sequence_partition import IndexRanges, count, positions_of
from ...spec.plan.plan import Plan
from ...spec.plan.stage_messages import (
    ActivationBlock,
    boundary_blocks,
    boundary_messages,
    crossing_parts,
)
from ...spec.schedules.stage_order import chunk_location, chunk_position
from ..groups.rank_layout import stage_layout


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Rows between this rank and a peer, numbered in the local block.

    ``peer`` is a global rank, perhaps this one where a stage holds both chunks.
    """

    peer: int
    tokens: IndexRanges
    samples: IndexRange

    @property
    def rows(self) -> int:
        """Vectors of the hidden size."""
        return count(self.tokens) * self.samples.size


@dataclass(frozen=True, slots=True)
class Route:
    """One end of a chunk: its neighbor there, and the crossing rows.

    ``chunk``: the neighbor's number on its stage; ``shape``: (tokens, samples, hidden) of the local
    block. ``sends`` and ``receives`` go opposite ways: at a chunk's start activations come in and
    gradients go out. ``side_routes``: other towers' outputs.
    """

    chunk: int
    shape: tuple[int, int, int]
    sends: tuple[MessageRows, ...]
    receives: tuple[MessageRows, ...]
    side_routes: tuple[Route, ...] = ()

    @property
    def all_routes(self) -> tuple[Route, ...]:
        """This route and its side routes, in crossing order."""
        return (self, *self.side_routes)

    def covers(self, message: MessageRows) -> bool:
        """True if a message is the whole block."""
        return message.rows == self.shape[0] * self.shape[1]


def chunk_routes(
    plan: Plan, stage: int, chunk: int, local_rank: int
) -> tuple[Route | None, Route | None]:
    """Routes at a chunk's start and end; None at the model's ends."""
    program = plan.program
    stages = len(program.stages)
    position = chunk_position(program.schedule.kind, stage, chunk, stages)
    last = stages * program.chunks_per_stage - 1
    return (
        _route(plan, position, -1, local_rank) if position else None,
        _route(plan, position, +1, local_rank) if position < last else None,
    )


def _route(plan: Plan, position: int, direction: int, rank: int) -> Route:
    parts = crossing_parts(plan, position + min(direction, 0))
    first, *side_routes = (_tensor_route(plan, position, direction, rank, part) for part in parts)
    return replace(first, side_routes=tuple(side_routes))


def _tensor_route(
    plan: Plan, position: int, direction: int, rank: int, part: tuple[int, int]
) -> Route:
    """Route of one crossing activation, by tokens of a sample and width."""
    kind, stages = plan.program.schedule.kind, len(plan.program.stages)
    neighbor_stage, chunk = chunk_location(kind, position + direction, stages)
    boundary, forward = position + min(direction, 0), direction > 0
    tokens, hidden = part
    block = boundary_blocks(plan, boundary, tokens)[0 if forward else 1][rank]
    first = stage_layout(plan)[neighbor_stage][0]
    sent = (m for m in boundary_messages(plan, boundary, forward, tokens) if m.source == rank)
    received = (
        m for m in boundary_messages(plan, boundary, not forward, tokens) if m.target == rank
    )
    return Route(
        chunk=chunk,
        shape=(count(block.tokens), block.samples.size, hidden),
        sends=tuple(_message_rows(block, m.block, first + m.target) for m in sent),
        receives=tuple(_message_rows(block, m.block, first + m.source) for m in received),
    )


def _message_rows(local: ActivationBlock, block: ActivationBlock, peer: int) -> MessageRows:
    first = local.samples.first
    samples = IndexRange(block.samples.first - first, block.samples.end - first)
    return MessageRows(peer, positions_of(local.tokens, block.tokens), samples)
