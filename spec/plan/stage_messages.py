"""Messages between neighbouring stages: who sends which rows of an activation to whom.

A rank holds a block of an activation (tokens, samples, hidden): the samples of its replica, and
where the sequence is split its part of the tokens. Where both stages cut the batch alike, a block
travels as it is and the receiving stage brings it into the layout of its first layer. Where they
do not (other widths, other shares), every rank gets the block that its first layer works on, from
as many ranks as hold parts of it; of ranks with equal blocks, each serves some of those that
want the same.
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
        """Vectors of the hidden size."""
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
    """The block of an activation that each rank of a stage holds around a layer.

    Args:
        stage: the stage.
        strategy: of the layer.
        samples: of a micro-batch.
        seq_len: tokens of a sample.
    """
    parts = batch_partition(stage, strategy, samples)
    return tuple(
        ActivationBlock(local_tokens(strategy, rank, seq_len), part)
        for rank, part in enumerate(parts)
    )


def messages(
    held: Sequence[ActivationBlock], wanted: Sequence[ActivationBlock]
) -> tuple[Message, ...]:
    """The messages that bring every rank the block it wants, by source and target.

    Args:
        held: by rank of the sending stage; together they hold everything.
        wanted: by rank of the receiving stage.
    """
    holders: dict[ActivationBlock, list[int]] = {}
    for rank, block in enumerate(held):
        holders.setdefault(block, []).append(rank)
    served: dict[ActivationBlock, int] = {}
    found = []
    for target, want in enumerate(wanted):
        turn = served[want] = served.get(want, -1) + 1
        for block in [want] if want in holders else holders:  # blocks of one layout never overlap
            if (own := block.intersection(want)).rows:
                ranks = holders[block]
                found.append(Message(ranks[turn % len(ranks)], target, own))
    return tuple(sorted(found))


def entry_strategy(
    plan: Plan, stage: int, chunk: int, every: tuple[LayerStrategy, ...] | None = None
) -> LayerStrategy | None:
    """The layout in which activations come to a chunk; None at the start of the model.

    Args:
        plan: a legal plan.
        stage: number of the stage.
        chunk: number of its virtual stage.
        every: ``plan.layer_strategies()``, where whoever asks for many chunks has them.
    """
    program = plan.program
    stages = program.stages
    position = chunk_position(program.schedule.kind, stage, chunk, len(stages))
    if position == 0:
        return None
    parts = stages[stage].virtual_stages[chunk]
    source, _ = _place(plan, position - 1)
    if not same_batch_partition(stages[source], stages[stage]):
        return parts[0].strategy
    strategies = plan.layer_strategies() if every is None else every
    return strategies[_first_layer(plan, parts) - 1]


def _place(plan: Plan, position: int) -> tuple[int, int]:
    return chunk_location(plan.program.schedule.kind, position, len(plan.program.stages))


def _first_layer(plan: Plan, parts: tuple[LayerPlan, ...]) -> int:
    return plan.chunk_layers(parts[:1])[0][0]


def stage_layouts(plan: Plan, stage: int) -> Iterable[LayerStrategy]:
    """Strategies along every chunk of a stage, after the layout in which it gets activations."""
    every = plan.layer_strategies()
    for number, parts in enumerate(plan.program.stages[stage].virtual_stages):
        entry = entry_strategy(plan, stage, number, every)
        if entry is not None:
            yield entry
        for _, _, strategy in plan.chunk_layers(parts):
            yield strategy


def crossing_parts(plan: Plan, position: int) -> tuple[tuple[int, int], ...]:
    """What crosses from the chunk at a position to the next: tokens of a sample, and width, each.

    The activations, unless the next chunk begins a tower; then the outputs of other towers that
    travel along, as messages of their own.
    """
    places = layer_contexts(plan.model, plan.workload.seq_len)
    stage, chunk = _place(plan, position + 1)
    first = _first_layer(plan, plan.program.stages[stage].virtual_stages[chunk])
    place, layer = places[first], plan.model.layers()[first]
    own = () if place.begins_tower else ((place.tokens, layer.hidden),)
    return (*own, *((source.tokens, source.hidden) for source in place.sources))


def boundary_messages(
    plan: Plan, position: int, forward: bool, tokens: int | None = None
) -> tuple[Message, ...]:
    """The messages of a micro-batch between a chunk and the next one.

    Args:
        plan: a legal plan.
        position: of the chunk in the order that data flows, not the last one.
        forward: activations to the next chunk; else gradients back from it.
        tokens: of a sample, where these are not the workload's.
    """
    before, after = boundary_blocks(plan, position, tokens)
    return messages(before, after) if forward else messages(after, before)


def boundary_blocks(
    plan: Plan, position: int, tokens: int | None = None
) -> tuple[tuple[ActivationBlock, ...], tuple[ActivationBlock, ...]]:
    """Blocks by rank where an activation leaves the chunk at a position, and where it arrives.

    Args:
        plan: a legal plan.
        position: of the chunk in the order that data flows, not the last one.
        tokens: of a sample, where these are not the workload's.
    """
    program = plan.program
    (stage, chunk), (after, entered) = _place(plan, position), _place(plan, position + 1)
    sizes = program.micro_batch_samples, tokens or plan.workload.seq_len
    leaving = program.stages[stage].virtual_stages[chunk][-1].strategy
    entry = entry_strategy(plan, after, entered)
    if entry is None:
        raise ValueError(f"no chunk follows position {position}")
    return (
        activation_blocks(program.stages[stage], leaving, *sizes),
        activation_blocks(program.stages[after], entry, *sizes),
    )
