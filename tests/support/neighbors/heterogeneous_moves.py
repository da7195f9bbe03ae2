"""Changes of what a plan over several device groups holds: devices, their order, their shares."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from generators.random_heterogeneous_plans import MixedDraft
from neighbors.plan_moves import Move, cut, degree, other_microbatches, other_schedule, resharded
from oracles.brute_force import Space, _places
from oracles.heterogeneous_oracle import Held, samples_of

Stages = tuple[Held, ...]
ALONE = 0.3
"""How often a change of devices or shares is that of one stage, not of all that are alike."""


def used_devices(held: Stages) -> Counter[str]:
    """Devices in stages, by group."""
    used: Counter[str] = Counter()
    for part in (part for stage in held for part in stage):
        used[part.device_group] += part.count
    return used


def _seated(draft: MixedDraft, held: Sequence[Held]) -> MixedDraft:
    """The draft on other devices, each group's taken in order from the first on."""
    taken: Counter[str] = Counter()
    stages = []
    for stage in held:
        parts = []
        for part in stage:
            parts.append(replace(part, first_rank=taken[part.device_group]))
            taken[part.device_group] += part.count
        stages.append(tuple(parts))
    pipeline = replace(draft.pipeline, stages=len(stages))
    return replace(draft, pipeline=pipeline, held=tuple(stages))


def keeping_levels(move: Move[MixedDraft]) -> Move[MixedDraft]:
    """The move; layers that come to stages of another width keep their sharding's level."""

    def moved(source: random.Random, space: Space, draft: MixedDraft) -> MixedDraft | None:
        found = move(source, space, draft)
        if found is None or (found.boundaries == draft.boundaries and found.held == draft.held):
            return found
        strategies = tuple(
            s if new == old or new % (s.tp * s.cp) else resharded(s, s, new, old)
            for s, new, old in zip(found.strategies, found.widths(), draft.widths(), strict=True)
        )
        return replace(found, strategies=strategies)

    return moved


def _cut(draft: MixedDraft, by_stage: Sequence[float]) -> MixedDraft | None:
    """The draft with its layers in proportion to those by stage, where it has other parts."""
    p = draft.pipeline
    shares = [0.0] * (p.stages * p.chunks)
    for stage in range(p.stages):
        for place in _places(p, stage):
            shares[place] = by_stage[stage] / p.chunks
    return cut(draft, shares)


def _layers_held(draft: MixedDraft) -> list[int]:
    counts = Counter(draft.stages())
    return [counts[stage] for stage in range(len(draft.held))]


def other_mixed_schedule(
    source: random.Random, space: Space, draft: MixedDraft
) -> MixedDraft | None:
    """Another schedule, every stage with about as many layers as before."""
    moved = other_schedule(source, len(draft.strategies), draft)
    return _cut(moved, _layers_held(draft))


def other_mixed_microbatches(
    source: random.Random, space: Space, draft: MixedDraft
) -> MixedDraft | None:
    """Other micro-batches, of which the groups of a stage take about the shares they had."""
    moved = other_microbatches(source, space, draft)
    if moved is None:
        return None
    samples = space.workload.global_batch // moved.pipeline.microbatches
    held = _each(moved.held, lambda stage: _shared_out(source, stage, samples))
    return None if held is None else replace(moved, held=held)


def _each(held: Stages, change: Callable[[Held], Held | None]) -> Stages | None:
    """Every stage changed, those that take the same shares alike; None where one cannot be."""
    known: dict[object, Held | None] = {}
    found = []
    for stage in held:
        key = tuple((part.device_group, part.count, part.batch_share) for part in stage)
        if key not in known:
            known[key] = change(stage)
        own = known[key]
        if own is None:
            return None
        shares = zip(stage, own, strict=True)
        found.append(tuple(replace(part, batch_share=new.batch_share) for part, new in shares))
    return tuple(found)


def _shared_out(source: random.Random, stage: Held, samples: int) -> Held | None:
    """The stage whose groups take whole samples near their shares; None if one gets none."""
    if len(stage) == 1:
        return (replace(stage[0], batch_share=None),)
    total = sum(part.count for part in stage)
    taken = []
    for part in stage[:-1]:
        grain = degree(source, part.count)
        share = part.count / total if part.batch_share is None else part.batch_share
        taken.append(max(1, round(share * samples / grain)) * grain)
    taken.append(samples - sum(taken))
    if taken[-1] < 1:
        return None
    shares = zip(stage, taken, strict=True)
    return tuple(replace(part, batch_share=n / samples) for part, n in shares)


def change_shares(source: random.Random, space: Space, draft: MixedDraft) -> MixedDraft | None:
    """Samples of a micro-batch from one group of a stage to another."""
    samples = space.workload.global_batch // draft.pipeline.microbatches
    shared = [s for s, stage in enumerate(draft.held) if len(stage) > 1]
    if not shared:
        return None
    chosen = source.choice(shared)
    giver, taker = source.sample(range(len(draft.held[chosen])), 2)
    grain = degree(source, math.lcm(*(part.count for part in draft.held[chosen])))
    most = (samples_of(draft.held[chosen][giver], samples) - 1) // grain
    if most < 1:
        return None
    given = grain * source.choice([1, 1, source.randint(1, most)])

    def change(stage: Held) -> Held:
        taken = [samples_of(part, samples) for part in stage]
        taken[giver] -= given
        taken[taker] += given
        shares = zip(stage, taken, strict=True)
        return tuple(replace(part, batch_share=n / samples) for part, n in shares)

    if source.random() < ALONE:
        held = list(draft.held)
        held[chosen] = change(held[chosen])
        return replace(draft, held=tuple(held))
    alike = [len(stage) for stage in draft.held] == [len(draft.held[0])] * len(draft.held)
    found = _each(draft.held, change) if alike else None
    return None if found is None else replace(draft, held=found)


def other_width(source: random.Random, space: Space, draft: MixedDraft) -> MixedDraft | None:
    """More or fewer devices of one group in one stage or in all that hold it."""
    name = source.choice(sorted(used_devices(draft.held)))
    holding = [s for s, stage in enumerate(draft.held) if _count(stage, name)]
    if source.random() < ALONE:
        holding = [source.choice(holding)]
    old = _count(draft.held[holding[0]], name)
    most = space.cluster.group(name).device_count // len(holding)
    count = source.choice([old // 2 or 1, 2 * old, source.randint(1, max(1, most))])
    held = [
        tuple(replace(p, count=count) if p.device_group == name else p for p in stage)
        if s in holding
        else stage
        for s, stage in enumerate(draft.held)
    ]
    return _seated(draft, held)


def _count(stage: Held, name: str) -> int:
    return sum(part.count for part in stage if part.device_group == name)


def other_depth(source: random.Random, space: Space, draft: MixedDraft) -> MixedDraft | None:
    """A run of stages alike gets more or fewer of them, narrower where it must."""
    runs = [list(run) for _, run in groupby(enumerate(draft.held), key=lambda s: _alike(s[1]))]
    run = source.choice(runs)
    first, stage, old = run[0][0], run[0][1], len(run)
    new = source.choice([old - 1, old + 1, 2 * old, source.randint(1, 2 * old)])
    if new in (0, old):
        return None
    filled = source.random() < 0.5
    parts = []
    for part in stage:
        most = space.cluster.group(part.device_group).device_count // new
        parts.append(replace(part, count=most if filled else min(part.count, most)))
    if not all(part.count for part in parts):
        return None
    held = [*draft.held[:first], *[tuple(parts)] * new, *draft.held[first + old :]]
    layers: list[float] = list(_layers_held(draft))
    own = sum(layers[first : first + old]) / new
    moved = _seated(draft, held)
    return _cut(moved, [*layers[:first], *[own] * new, *layers[first + old :]])


def _alike(stage: Held) -> object:
    return [(part.device_group, part.count, part.batch_share) for part in stage]


def other_group(source: random.Random, space: Space, draft: MixedDraft) -> MixedDraft | None:
    """Devices of another group for one that a stage holds, or all that are alike: idle ones first.

    Where none are idle, another stage gives some of its own.
    """
    s = source.randrange(len(draft.held))
    place = source.randrange(len(draft.held[s]))
    chosen = [i for i, stage in enumerate(draft.held) if _alike(stage) == _alike(draft.held[s])]
    if source.random() < ALONE:
        chosen = [s]
    others = [g for g in space.cluster.groups if not _count(draft.held[s], g.name)]
    if not others:
        return None
    group = source.choice(others)
    held, used = list(draft.held), used_devices(draft.held)[group.name]
    free = max(0, group.device_count - used) // len(chosen)
    if not free:
        givers = [i for i, stage in enumerate(held) if _count(stage, group.name)]
        if not givers:
            return None
        giver = source.choice(givers)
        free, chosen = _count(held[giver], group.name) // 2, [s]
        held[giver] = tuple(
            replace(part, count=part.count - free) if part.device_group == group.name else part
            for part in held[giver]
        )
    count = source.choice([min(draft.held[s][place].count, free), source.randint(1, free or 1)])
    for i in chosen if count else ():
        parts = list(held[i])
        parts[place] = replace(parts[place], device_group=group.name, count=count)
        held[i] = tuple(parts)
    return _seated(draft, held)


def order_devices(source: random.Random, space: Space, draft: MixedDraft) -> MixedDraft | None:
    """Two runs of alike stages or two stages in each other's place, or the groups inside stages."""
    shared = any(len(stage) > 1 for stage in draft.held)
    if shared and (len(draft.held) == 1 or source.random() < ALONE):
        return _seated(draft, [stage[::-1] for stage in draft.held])
    numbered = list(enumerate(draft.held))
    runs = [[n] for n, _ in numbered]
    if source.random() > ALONE:
        runs = [[n for n, _ in run] for _, run in groupby(numbered, key=lambda s: _alike(s[1]))]
    if len(runs) < 2:
        return None
    a, b = source.sample(range(len(runs)), 2)
    runs[a], runs[b] = runs[b], runs[a]
    order = [n for run in runs for n in run]
    moved = _seated(draft, [draft.held[n] for n in order])
    if source.random() < 0.5:
        return moved
    layers = _layers_held(draft)  # every stage keeps its number of them
    return _cut(replace(moved, boundaries=()), [layers[n] for n in order])


def join_or_part(source: random.Random, space: Space, draft: MixedDraft) -> MixedDraft | None:
    """Stages of one group each become stages of several that share the batch, or the reverse."""
    samples = space.workload.global_batch // draft.pipeline.microbatches
    runs = [list(run) for _, run in groupby(draft.held, key=_alike)]
    layers = _layers_held(draft)
    if len(runs) == 1:
        parts = [
            [(replace(part, batch_share=None),) for part in place]
            for place in zip(*runs[0], strict=True)
        ]
        held = [stage for block in parts for stage in block]
        return _cut(_seated(draft, held), [float(stage[0].count) for stage in held])
    if len({len(run) for run in runs}) > 1 or any(len(run[0]) > 1 for run in runs):
        return None
    joined = [tuple(part for stage in place for part in stage) for place in zip(*runs, strict=True)]
    known = _each(tuple(joined), lambda stage: _shared_out(source, stage, samples))
    if known is None:
        return None
    depth = len(joined)
    by_stage = [float(sum(layers[s::depth])) for s in range(depth)]
    return _cut(_seated(draft, known), by_stage)
