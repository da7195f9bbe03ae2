"""Legal neighbors of a plan: one decision changed, or two, and nothing asked of the planner."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Generic

from generators.random_plans import Draft
from neighbors.plan_moves import (
    D,
    Move,
    change_strategy,
    cut,
    degree,
    move_cut,
    other_microbatches,
    other_schedule,
    resharded,
)
from oracles.brute_force import Pipeline, Space, _pipeline_allowed, _wanted, every_sharding

from shardwright.planner.candidates.evaluator import Decision
from shardwright.planner.space.coverage import MAX_UNEVEN_LAYERS
from shardwright.spec.limits import MAX_PASSES
from shardwright.spec.rules.plan_rules import (
    layer_violation,
    stack_violation,
    tied_embedding_violation,
)
from shardwright.spec.schedules.stage_order import SPLIT_KINDS
from shardwright.spec.strategy import LayerStrategy

TRIES, TRIES_ALIKE = 60, 10
"""Draws until a neighbor is given up, so many of them by the same moves."""


@dataclass(frozen=True)
class Sort(Generic[D]):
    """How plans of a sort are changed, and which of them a space has."""

    moves: Mapping[str, Move[D]]
    is_legal: Callable[[Space, D], bool]


@dataclass(frozen=True)
class Neighbor(Generic[D]):
    """A plan beside another, and the moves that lead there."""

    draft: D
    moves: tuple[str, ...]


def draft_of(decision: Decision) -> Draft:
    """A planner's decision as the oracle's kind of plan."""
    pipeline = pipeline_of(decision)
    return Draft(pipeline=pipeline, boundaries=decision.boundaries, strategies=decision.strategies)


def pipeline_of(decision: Decision) -> Pipeline:
    """The pipeline of a planner's decision."""
    shape = decision.shape
    return Pipeline(
        stages=shape.stages,
        width=shape.ranks,
        kind=shape.kind,
        chunks=shape.chunks,
        microbatches=shape.microbatches,
    )


def neighbor(
    source: random.Random, space: Space, base: D, moves: int, sort: Sort[D]
) -> Neighbor[D] | None:
    """A random plan so many moves away that is legal and in the space; None if none was met."""
    names: tuple[str, ...] = ()
    for number in range(TRIES):
        if number % TRIES_ALIKE == 0:
            names = tuple(source.choice(tuple(sort.moves)) for _ in range(moves))
        draft: D | None = base
        for name in names:
            draft = sort.moves[name](source, space, draft) if draft is not None else None
        if draft is not None and draft != base and sort.is_legal(space, draft):
            return Neighbor(draft, names)
    return None


def is_legal(space: Space, draft: Draft) -> bool:
    """Whether the space has a plan; by :mod:`oracles.brute_force`, for one strategy at a time."""
    p, layers = draft.pipeline, len(space.model.layers())
    if p.stages * p.width > space.cluster.device_count or not is_cut(space, draft):
        return False
    sizes = [b - a for a, b in pairwise(draft.boundaries)]
    if layers > MAX_UNEVEN_LAYERS and p.chunks > 1 and max(sizes) - min(sizes) > 1:
        return False
    samples = space.workload.global_batch // p.microbatches
    return all(
        suits(space, p.width, samples, number, strategy)
        for number, strategy in enumerate(draft.strategies)
    )


def is_cut(space: Space, draft: Draft) -> bool:
    """Whether pipeline and cuts are legal, and layers of one table are treated alike."""
    p, layers = draft.pipeline, len(space.model.layers())
    parts = p.stages * p.chunks
    if len(draft.boundaries) != parts + 1 or any(b <= a for a, b in pairwise(draft.boundaries)):
        return False
    if (3 if p.kind in SPLIT_KINDS else 2) * parts * p.microbatches > MAX_PASSES:
        return False
    if not _pipeline_allowed(space, p, layers):
        return False
    return tied_embedding_violation(space.model, draft.strategies) is None


def suits(space: Space, width: int, samples: int, number: int, s: LayerStrategy) -> bool:
    """Whether a layer may have a strategy on a stage of so many ranks of one device group."""
    layer = space.model.layers()[number]
    lengths = [t.seq_len for t in space.model.towers for _ in range(t.layer_count)]
    seq_len = lengths[number] or space.workload.seq_len
    if width % (s.tp * s.cp) or layer_violation(layer, s, width, samples, seq_len) is not None:
        return False
    if s.shard not in every_sharding(s.state_ranks(width)):
        return False
    if stack_violation(s, space.stack) is not None:
        return False
    return _wanted(space, number, layer, s, width, samples)


def is_cut_as_searched(space: Space, draft: Draft) -> bool:
    """Whether the search looks at these cuts: of a large model's virtual stages it has one."""
    p, layers = draft.pipeline, len(space.model.layers())
    if layers <= MAX_UNEVEN_LAYERS or p.chunks == 1:
        return True
    parts = p.stages * p.chunks
    return draft.boundaries == tuple(round(i * layers / parts) for i in range(parts + 1))


def in_words(draft: Draft) -> str:
    """A plan in a line: its pipeline, layers by chunk, runs of equal strategies."""
    p = draft.pipeline
    sizes = [b - a for a, b in pairwise(draft.boundaries)]
    runs = groupby(zip(draft.strategies, draft.widths(), strict=True))
    each = ", ".join(
        f"{len(list(same))} x tp {s.tp} {s.sequence_parallel} cp {s.cp} ep {s.ep} etp {s.etp} "
        f"{s.shard.level_name(s.state_ranks(width))} {s.recompute}"
        for (s, width), same in runs
    )
    return f"{draft.devices()} {p.kind} {p.microbatches} micro-batches, layers {sizes}: {each}"


def _schedule(source: random.Random, space: Space, draft: Draft) -> Draft | None:
    """Another schedule, its chunks cut evenly where there are others than before."""
    layers = len(space.model.layers())
    moved = other_schedule(source, layers, draft)
    return cut(moved, [1.0] * moved.pipeline.stages * moved.pipeline.chunks)


def _layout(source: random.Random, space: Space, draft: Draft) -> Draft | None:
    """Stages deeper or wider, or one more or fewer of them: some devices may stay idle."""
    p, layers = draft.pipeline, len(space.model.layers())
    devices = space.cluster.device_count
    if source.random() < 0.5:
        stages, width = p.stages + source.choice((-1, 1)), p.width
    else:
        width = degree(source, p.stages * p.width)
        stages = devices // width
    if not 1 <= stages <= layers or stages * width > devices:
        return None
    strategies = tuple(
        resharded(s, s, width, p.width) if width % (s.tp * s.cp) == 0 else s
        for s in draft.strategies
    )
    moved = replace(draft, pipeline=replace(p, stages=stages, width=width), strategies=strategies)
    return cut(moved, [1.0] * stages * p.chunks)


EQUAL_STAGES: Sort[Draft] = Sort(
    moves={
        "strategy": change_strategy,
        "boundary": move_cut,
        "micro-batches": other_microbatches,
        "schedule": _schedule,
        "layout": _layout,
    },
    is_legal=is_legal,
)
