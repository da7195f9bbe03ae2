"""Legal neighbours of a plan: one decision changed, or two, and nothing asked of the planner."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from oracle import (
    RECOMPUTES,
    SEQUENCE_PARALLELS,
    Pipeline,
    Space,
    _pipeline_allowed,
    _wanted,
    every_sharding,
)
from random_plans import Draft

from shardwright.costmodel.simulate import MAX_PASSES
from shardwright.planner.candidates import Decision
from shardwright.planner.space_report import MOST_UNEVEN
from shardwright.spec.errors import InputError
from shardwright.spec.legality import layer_reason, stack_reason, tied_reason
from shardwright.spec.schedule import EVERY_KIND, SPLIT_KINDS, V_KINDS
from shardwright.spec.strategy import LayerStrategy, Sharding

Move = Callable[[random.Random, Space, Draft], Draft | None]
TRIES = 60
AXES = ("tp", "cp", "sequence_parallel", "ep", "etp", "shard", "shard", "recompute", "recompute")


def draft_of(decision: Decision) -> Draft:
    """A planner's decision as the oracle's kind of plan."""
    shape = decision.shape
    pipeline = Pipeline(
        stages=shape.stages,
        width=shape.ranks,
        kind=shape.kind,
        chunks=shape.chunks,
        microbatches=shape.microbatches,
    )
    return Draft(pipeline=pipeline, cuts=decision.cuts, strategies=decision.strategies)


@dataclass(frozen=True)
class Neighbour:
    """A plan beside another, and the moves that lead there."""

    draft: Draft
    moves: tuple[str, ...]


def neighbour(source: random.Random, space: Space, base: Draft, moves: int) -> Neighbour | None:
    """A random plan so many moves away that is legal and in the space; None if none was met."""
    for _ in range(TRIES):
        names = tuple(source.choice(tuple(MOVES)) for _ in range(moves))
        draft: Draft | None = base
        for name in names:
            draft = MOVES[name](source, space, draft) if draft is not None else None
        if draft is not None and draft != base and is_legal(space, draft):
            return Neighbour(draft, names)
    return None


def is_legal(space: Space, draft: Draft) -> bool:
    """Whether the space has a plan; the rules of :mod:`oracle`, for one strategy at a time."""
    p, layers = draft.pipeline, space.model.layers()
    parts = p.stages * p.chunks
    if p.stages * p.width > space.cluster.device_count or len(draft.cuts) != parts + 1:
        return False
    sizes = [b - a for a, b in pairwise(draft.cuts)]
    uneven = len(layers) > MOST_UNEVEN and p.chunks > 1 and max(sizes) - min(sizes) > 1
    passes = (3 if p.kind in SPLIT_KINDS else 2) * parts * p.microbatches
    if min(sizes) < 1 or uneven or passes > MAX_PASSES:
        return False
    if not _pipeline_allowed(space, p, len(layers)):
        return False
    if tied_reason(space.model, draft.strategies) is not None:
        return False
    return all(_suits(space, draft, number) for number in range(len(layers)))


def is_cut_as_searched(space: Space, draft: Draft) -> bool:
    """Whether the search looks at these cuts: of a large model's virtual stages it has one."""
    p, layers = draft.pipeline, len(space.model.layers())
    if layers <= MOST_UNEVEN or p.chunks == 1:
        return True
    parts = p.stages * p.chunks
    return draft.cuts == tuple(round(i * layers / parts) for i in range(parts + 1))


def in_words(draft: Draft) -> str:
    """A plan in a line: its pipeline, layers by chunk, runs of equal strategies."""
    p = draft.pipeline
    sizes = [b - a for a, b in pairwise(draft.cuts)]
    runs = [(len(list(same)), s) for s, same in groupby(draft.strategies)]
    each = ", ".join(
        f"{count} x tp {s.tp} {s.sequence_parallel} cp {s.cp} ep {s.ep} etp {s.etp} "
        f"{s.shard.level_name(s.state_ranks(p.width))} {s.recompute}"
        for count, s in runs
    )
    return f"{p.stages} x {p.width} {p.kind} {p.microbatches} micro-batches, layers {sizes}: {each}"


def _suits(space: Space, draft: Draft, number: int) -> bool:
    layer, s, width = space.model.layers()[number], draft.strategies[number], draft.pipeline.width
    samples = space.workload.global_batch // draft.pipeline.microbatches
    lengths = [t.seq_len for t in space.model.towers for _ in range(t.layer_count)]
    seq_len = lengths[number] or space.workload.seq_len
    if width % (s.tp * s.cp) or layer_reason(layer, s, width, samples, seq_len) is not None:
        return False
    if s.shard not in every_sharding(s.state_ranks(width)):
        return False
    if stack_reason(s, space.stack) is not None:
        return False
    return _wanted(space, number, layer, s, width, samples)


def _resharded(
    changed: LayerStrategy, before: LayerStrategy, width: int, old: int
) -> LayerStrategy:
    """The strategy on ``width`` ranks with the sharding level that it had on ``old``."""
    try:
        level = before.shard.level_name(before.state_ranks(old))
        return replace(changed, shard=Sharding.from_text(level, changed.state_ranks(width)))
    except (InputError, ZeroDivisionError):
        return changed


def _degree(source: random.Random, width: int) -> int:
    return source.choice([d for d in range(1, width + 1) if width % d == 0])


def _strategy(source: random.Random, space: Space, draft: Draft) -> Draft | None:
    """One axis of a range of layers that are treated alike."""
    width, strategies = draft.pipeline.width, list(draft.strategies)
    first = source.randrange(len(strategies))
    last = first
    while last + 1 < len(strategies) and strategies[last + 1] == strategies[first]:
        last += 1
    last = source.choice([first, last, source.randint(first, last)])
    axis, own = source.choice(AXES), strategies[first]
    value: object
    if axis == "shard":
        value = source.choice(every_sharding(max(1, own.state_ranks(width))))
    elif axis == "recompute":
        value = source.choice(RECOMPUTES)
    elif axis == "sequence_parallel":
        value = source.choice(SEQUENCE_PARALLELS)
    else:
        value = _degree(source, width)
    if axis == "shard":
        changed = replace(own, shard=value)  # type: ignore[arg-type]
    else:
        changed = replace(own, **{axis: value})  # type: ignore[arg-type]
        if width % (changed.tp * changed.cp):
            return None
        changed = _resharded(changed, own, width, width)
    strategies[first : last + 1] = [changed] * (last + 1 - first)
    if space.model.tie_embeddings:  # one table, one strategy
        ends = [n for n, x in enumerate(space.model.layers()) if x.kind in ("embedding", "head")]
        touched = [n for n in ends if first <= n <= last]
        for n in ends if touched else ():
            strategies[n] = changed
    return replace(draft, strategies=tuple(strategies))


def _boundary(source: random.Random, space: Space, draft: Draft) -> Draft | None:
    """A layer from one chunk to the next."""
    if len(draft.cuts) == 2:
        return None
    cuts = list(draft.cuts)
    cuts[source.randrange(1, len(cuts) - 1)] += source.choice((-1, 1))
    return replace(draft, cuts=tuple(cuts))


def _microbatches(source: random.Random, space: Space, draft: Draft) -> Draft | None:
    """More or fewer micro-batches of other sizes."""
    batch = space.workload.global_batch
    count = source.choice([m for m in range(1, batch + 1) if batch % m == 0])
    return replace(draft, pipeline=replace(draft.pipeline, microbatches=count))


def _schedule(source: random.Random, space: Space, draft: Draft) -> Draft | None:
    """Another schedule, its chunks cut evenly where there are others than before."""
    p, layers = draft.pipeline, len(space.model.layers())
    kind = source.choice(EVERY_KIND)
    most = max(2, layers // p.stages)
    chunks = 2 if kind in V_KINDS else source.randint(2, most) if kind == "interleaved" else 1
    return _cut(replace(draft, pipeline=replace(p, kind=kind, chunks=chunks)), layers)


def _layout(source: random.Random, space: Space, draft: Draft) -> Draft | None:
    """Stages deeper or wider, or one more or fewer of them: some devices may stay idle."""
    p, layers = draft.pipeline, len(space.model.layers())
    devices = space.cluster.device_count
    if source.random() < 0.5:
        stages, width = p.stages + source.choice((-1, 1)), p.width
    else:
        width = _degree(source, p.stages * p.width)
        stages = devices // width
    if not 1 <= stages <= layers or stages * width > devices:
        return None
    strategies = tuple(
        _resharded(s, s, width, p.width) if width % (s.tp * s.cp) == 0 else s
        for s in draft.strategies
    )
    moved = replace(draft, pipeline=replace(p, stages=stages, width=width), strategies=strategies)
    return _cut(moved, layers)


def _cut(draft: Draft, layers: int) -> Draft | None:
    """The draft cut evenly, if its cuts are not of so many parts."""
    parts = draft.pipeline.stages * draft.pipeline.chunks
    if parts + 1 == len(draft.cuts):
        return draft
    if parts > layers:
        return None
    return replace(draft, cuts=tuple(round(i * layers / parts) for i in range(parts + 1)))


MOVES: dict[str, Move] = {
    "strategy": _strategy,
    "boundary": _boundary,
    "micro-batches": _microbatches,
    "schedule": _schedule,
    "layout": _layout,
}
