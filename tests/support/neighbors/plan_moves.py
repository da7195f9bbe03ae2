"""Changes of one decision of a plan, whatever devices its stages have."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TypeVar

from generators.random_plans import Draft
from oracles.brute_force import RECOMPUTES, SEQUENCE_PARALLELS, Space, every_sharding

from shardwright.spec.errors import InputError
from shardwright.spec.schedules.stage_order import ALL_KINDS, V_KINDS
from shardwright.spec.strategy import LayerStrategy, Sharding

D = TypeVar("D", bound=Draft)
Move = Callable[[random.Random, Space, D], D | None]
AXES = ("tp", "cp", "sequence_parallel", "ep", "etp", "shard", "shard", "recompute", "recompute")


def resharded(changed: LayerStrategy, before: LayerStrategy, width: int, old: int) -> LayerStrategy:
    """The strategy on ``width`` ranks with the sharding level that it had on ``old``."""
    try:
        level = before.shard.level_name(before.state_ranks(old))
        return replace(changed, shard=Sharding.from_text(level, changed.state_ranks(width)))
    except (InputError, ZeroDivisionError):
        return changed


def degree(source: random.Random, width: int) -> int:
    """A divisor of a width."""
    return source.choice([d for d in range(1, width + 1) if width % d == 0])


def change_strategy(source: random.Random, space: Space, draft: D) -> D | None:
    """One axis of a range of layers that are treated alike."""
    widths, strategies = draft.widths(), list(draft.strategies)
    first = source.randrange(len(strategies))
    last = first
    while last + 1 < len(strategies) and strategies[last + 1] == strategies[first]:
        last += 1
    last = source.choice([first, last, source.randint(first, last)])
    changed = _changed(source, strategies[first], widths[first])
    if changed is None:
        return None
    touched = set(range(first, last + 1))
    if space.model.tie_embeddings:  # one table, one strategy
        ends = {n for n, x in enumerate(space.model.layers()) if x.kind in ("embedding", "head")}
        touched |= ends if touched & ends else set()
    for n in touched:
        same = widths[n] == widths[first]
        strategies[n] = changed if same else resharded(changed, changed, widths[n], widths[first])
    return replace(draft, strategies=tuple(strategies))


def _changed(source: random.Random, own: LayerStrategy, width: int) -> LayerStrategy | None:
    """A strategy with another value of one axis."""
    axis = source.choice(AXES)
    value: object
    if axis == "shard":
        return replace(own, shard=source.choice(every_sharding(max(1, own.state_ranks(width)))))
    if axis == "recompute":
        value = source.choice(RECOMPUTES)
    elif axis == "sequence_parallel":
        value = source.choice(SEQUENCE_PARALLELS)
    else:
        value = degree(source, width)
    changed = replace(own, **{axis: value})  # type: ignore[arg-type]
    return None if width % (changed.tp * changed.cp) else resharded(changed, own, width, width)


def move_cut(source: random.Random, space: Space, draft: D) -> D | None:
    """A layer from one chunk to the next."""
    if len(draft.boundaries) == 2:
        return None
    boundaries = list(draft.boundaries)
    boundaries[source.randrange(1, len(boundaries) - 1)] += source.choice((-1, 1))
    if any(b <= a for a, b in pairwise(boundaries)):
        return None
    return replace(draft, boundaries=tuple(boundaries))


def other_microbatches(source: random.Random, space: Space, draft: D) -> D | None:
    """More or fewer micro-batches of other sizes."""
    batch = space.workload.global_batch
    count = source.choice([m for m in range(1, batch + 1) if batch % m == 0])
    return replace(draft, pipeline=replace(draft.pipeline, microbatches=count))


def other_schedule(source: random.Random, layers: int, draft: D) -> D:
    """Another schedule; its cuts may be those of other chunks than it has."""
    p = draft.pipeline
    kind = source.choice(ALL_KINDS)
    most = max(2, layers // p.stages)
    chunks = 2 if kind in V_KINDS else source.randint(2, most) if kind == "interleaved" else 1
    return replace(draft, pipeline=replace(p, kind=kind, chunks=chunks))


def cut(draft: D, shares: Sequence[float]) -> D | None:
    """The draft cut in proportion to the shares of its parts, if it is not cut in so many."""
    parts, layers = len(shares), len(draft.strategies)
    if parts + 1 == len(draft.boundaries):
        return draft
    if parts > layers:
        return None
    boundaries = [0]
    for number, done in enumerate(accumulate(shares)):
        most = layers - (parts - number - 1)
        boundaries.append(max(boundaries[-1] + 1, min(most, round(done * layers / sum(shares)))))
    return replace(draft, boundaries=tuple(boundaries))
