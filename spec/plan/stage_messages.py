"""Messages between neighboring stages: sender, receiver and rows of an activation.

A rank holds a block of an activation (tokens, samples, hidden): the samples of its replica, and
where the sequence is split its part of the tokens. If both stages partition the batch equally, a
block is sent as it is and the receiving stage redistributes it for its first layer. If not
(other widths, other shares), every rank receives the block that its first layer works on, from
all ranks that hold parts of it; ranks with equal blocks share the receivers of that block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..model.towers import layer_contexts
from ..parallel.batch_partition import IndexRange, batch_partition, same_batch_partition
from ..parallel.sequence_partition import IndexRanges, count, intersect_ranges, local_tokens
from ..schedules.stage_order import chunk_location, chunk_position

if TYPE_CHECKING:
    from ..strategy import LayerStrategy
    from .plan import LayerPlan, Plan, Stage


class ActivationBlock(NamedTuple):
    """Rows of a micro-batch's activation: tokens of a sample, and samples."""

    tokens: IndexRanges
    samples: IndexRange

    @property
    def rows(self) -> int:
        """Number of vectors of the hidden size."""
        return count(self.tokens) * self.samples.size

    def intersection(self, other: ActivationBlock) -> ActivationBlock:
        """The rows in both."""
        return ActivationBlock(
            intersect_ranges(self.tokens, other.tokens), self.samples.intersection(other.samples)
        )


class Message(NamedTuple):
    """One message of one micro-batch; ranks are numbered inside their stages."""

    source: int
    target: int
    block: ActivationBlock


def activation_blocks(
    stage: Stage, strategy: LayerStrategy, samples: int, seq_len: int
) -> tuple[ActivationBlock, ...]:
    """Activation block of each rank of a stage around a layer."""
    samples_by_rank = batch_partition(stage, strategy, samples)
    return tuple(
        ActivationBlock(local_tokens(strategy, rank, seq_len), rank_samples)
        for rank, rank_samples in enumerate(samples_by_rank)
    )


def messages(
    sent: Sequence[ActivationBlock], received: Sequence[ActivationBlock]
) -> tuple[Message, ...]:
    """Messages that bring every rank its block, by source and target.

    Args:
        sent: blocks by rank of the sending stage; together they hold everything.
        received: blocks by rank of the receiving stage.
    """
    holders: dict[ActivationBlock, list[int]] = {}
    for rank, block in enumerate(sent):
        holders.setdefault(block, []).append(rank)
    turns: dict[ActivationBlock, int] = {}
    routes = []
    for target, needed in enumerate(received):
        turn = turns[needed] = turns.get(needed, -1) + 1
        for block in (
            [needed] if needed in holders else holders
        ):  # blocks of one layout never overlap
            if (common := block.intersection(needed)).rows:
                ranks = holders[block]
                routes.append(Message(ranks[turn % len(ranks)], target, common))
    return tuple(sorted(routes))


def entry_strategy(
    plan: Plan, stage: int, chunk: int, every: tuple[LayerStrategy, ...] | None = None
) -> LayerStrategy | None:
    """The layout of a chunk's input; None at the model's start.

    Args:
        plan: a legal plan.
        stage: number of the stage.
        chunk: number of its virtual stage.
        every: ``plan.layer_strategies()``, to compute them once for many chunks.
    """
    program = plan.program
    stages = program.stages
    position = chunk_position(program.schedule.kind, stage, chunk, len(stages))
    if position == 0:
        return None
    parts = stages[stage].virtual_stages[chunk]
    source, _ = _chunk_location(plan, position - 1)
    if not same_batch_partition(stages[source], stages[stage]):
        return parts[0].strategy
    strategies = plan.layer_strategies() if every is None else every
    return strategies[_first_layer(plan, parts) - 1]


def _chunk_location(plan: Plan, position: int) -> tuple[int, int]:
    return chunk_location(plan.program.schedule.kind, position, len(plan.program.stages))


def _first_layer(plan: Plan, parts: tuple[LayerPlan, ...]) -> int:
    return plan.chunk_layers(parts[:1])[0][0]


def stage_layouts(plan: Plan, stage: int) -> Iterable[LayerStrategy]:
    """Strategies along a stage's chunks, each after its input's layout."""
    every = plan.layer_strategies()
    for number, parts in enumerate(plan.program.stages[stage].virtual_stages):
        entry = entry_strategy(plan, stage, number, every)
        if entry is not None:
            yield entry
        for _, _, strategy in plan.chunk_layers(parts):
            yield strategy


def crossing_parts(plan: Plan, position: int) -> tuple[tuple[int, int], ...]:
    """Tokens and width of each tensor sent to the next chunk.

    The activations, unless the next chunk begins a tower; then outputs of other towers, as messages
    of their own.
    """
    contexts = layer_contexts(plan.model, plan.workload.seq_len)
    stage, chunk = _chunk_location(plan, position + 1)
    first_layer = _first_layer(plan, plan.program.stages[stage].virtual_stages[chunk])
    context, layer = contexts[first_layer], plan.model.layers()[first_layer]
    activation = () if context.begins_tower else ((context.tokens, layer.hidden),)
    return (*activation, *((source.tokens, source.hidden) for source in context.sources))


def boundary_messages(
    plan: Plan, position: int, forward: bool, tokens: int | None = None
) -> tuple[Message, ...]:
    """The messages of a micro-batch between a chunk and the next one.

    Args:
        plan: a legal plan.
        position: of the chunk in the order of the data flow, not the last one.
        forward: activations to the next chunk; else gradients back from it.
        tokens: of a sample, if not the workload's.
    """
    before, after = boundary_blocks(plan, position, tokens)
    return messages(before, after) if forward else messages(after, before)


def boundary_blocks(
    plan: Plan, position: int, tokens: int | None = None
) -> tuple[tuple[ActivationBlock, ...], tuple[ActivationBlock, ...]]:
    """Blocks by rank at both ends of a chunk boundary.

    Args:
        plan: a legal plan.
        position: of the chunk in the order of the data flow, not the last one.
        tokens: of a sample, if not the workload's.
    """
    program = plan.program
    (stage, chunk), (next_stage, next_chunk) = (
        _chunk_location(plan, position),
        _chunk_location(plan, position + 1),
    )
    sizes = program.micro_batch_samples, tokens or plan.workload.seq_len
    output_strategy = program.stages[stage].virtual_stages[chunk][-1].strategy
    entry = entry_strategy(plan, next_stage, next_chunk)
    if entry is None:
        raise ValueError(f"no chunk follows position {position}")
    return (
        activation_blocks(program.stages[stage], output_strategy, *sizes),
        activation_blocks(program.stages[next_stage], entry, *sizes),
    )
