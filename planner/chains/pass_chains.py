"""Precedence chains of passes: lower bounds of a step.

The first micro-batch goes forward to chunk c of stage s; the stage runs its passes in order from
there to the last backward of c; the last micro-batch goes backward to the model's start, or the
stage ends its passes. A backward whose message the chain follows counts without its reductions; the
stage where it ends counts all of its own. For 1F1B and interleaved schedules of like stages one of
these chains is the critical path.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...costmodel.lowering.stage_passes import PassKind, StagePasses, stage_passes
from ...costmodel.simulation.simulator import pass_kind_counts
from ...spec.schedules.passes import BackwardPart
from ...spec.schedules.stage_order import SPLIT_KINDS, ScheduleKind, chunk_position
from ..tables.arrays import Bools, Floats
from ..tables.pass_kinds import KINDS, STEP_END, kind_number


@dataclass(frozen=True, slots=True)
class Chain:
    """Pass counts of a chain, by position of the model and kind.

    ``roles``: role number of each position; positions of equal counts share one. ``single`` and
    ``paired``: passes alone and in overlapping pairs, shape (roles, KINDS). ``hops``: awaited
    messages into each position, forward and backward, shape (2, positions). The mean of chains is
    as good as a chain.
    """

    roles: tuple[int, ...]
    single: Floats
    paired: Floats
    hops: Floats


Pipeline = tuple[ScheduleKind, int, int, int]
"""A schedule, stages, chunks a stage, micro-batches."""


@lru_cache(maxsize=4096)
def chains(shape: Pipeline, stages: tuple[int, ...]) -> tuple[Chain, ...]:
    """Chains through the first and the last chunk of some stages."""
    schedule, count, chunks, _ = shape
    wanted = {(stage, chunk): None for stage in stages for chunk in (chunks - 1, 0)}
    return tuple(
        _through(shape, stage, chunk, drains)
        for stage, chunk in wanted
        for drains in (True, False)
        if chunk_position(schedule, stage, chunk, count) or drains == (schedule not in SPLIT_KINDS)
    )


def _through(shape: Pipeline, stage: int, chunk: int, drains: bool) -> Chain:
    schedule, stages, chunks, microbatches = shape
    passes = stage_passes(schedule, stage, stages, chunks, microbatches)
    alone, overlapped = _stage_counts(passes, chunk, microbatches - 1, chunks, drains)
    end = chunk_position(schedule, stage, chunk, stages)
    single, paired = (np.zeros((stages * chunks, KINDS)) for _ in range(2))
    for number in range(chunks):
        position = chunk_position(schedule, stage, number, stages)
        single[position], paired[position] = alone[number], overlapped[number]
    single[:end] += outer_counts(schedule, microbatches, drains)
    if end and drains and schedule not in SPLIT_KINDS:
        last = PassKind(False, 0, microbatches == 1, True)
        _move(single[end], kind_number(last), kind_number(last, sends=True))
        _move(single[0], kind_number(last, sends=True), kind_number(last))
    last_stage = 0 if drains else stage
    for number in range(chunks):
        single[chunk_position(schedule, last_stage, number, stages), STEP_END] = 1
    hops = np.zeros((2, stages * chunks))
    hops[0, 1 : end + 1] = 1
    hops[1, :end] = drains
    return make_chain(single, paired, hops)


def _move(counts: Floats, kind: int, other: int) -> None:
    """Count one pass of ``kind``, if it runs alone, as ``other``."""
    one = min(1.0, counts[kind])
    counts[kind] -= one
    counts[other] += one


def make_chain(single: Floats, paired: Floats, hops: Floats) -> Chain:
    """Chain from the counts of each position, shape (positions, KINDS)."""
    numbers: dict[tuple[bytes, bytes], int] = {}
    representatives: list[int] = []
    roles: list[int] = []
    for position in range(len(single)):
        key = (single[position].tobytes(), paired[position].tobytes())
        role = numbers.setdefault(key, len(numbers))
        if role == len(representatives):
            representatives.append(position)
        roles.append(role)
    return Chain(tuple(roles), single[representatives], paired[representatives], hops)


def pass_counts(schedule: ScheduleKind, microbatches: int) -> Floats:
    """Passes of each kind of a stage of one chunk and its end, shape (KINDS,)."""
    counts = np.zeros(KINDS)
    for (pass_kind,), count in pass_kind_counts(schedule, microbatches, 1).items():
        counts[kind_number(pass_kind)] += count
    counts[STEP_END] = 1
    return counts


def draining_counts(schedule: ScheduleKind, microbatches: int) -> Floats:
    """The same up to the last message, which earlier stages wait for."""
    counts = pass_counts(schedule, microbatches)
    counts[STEP_END] = 0
    if schedule not in SPLIT_KINDS:
        last = PassKind(False, 0, microbatches == 1, True)
        _move(counts, kind_number(last), kind_number(last, sends=True))
    return counts


def outer_counts(schedule: ScheduleKind, microbatches: int, drains: bool) -> Floats:
    """Earlier chunks' passes on a chain: a forward, and a (partial) backward."""
    counts = np.zeros(KINDS)
    counts[kind_number(PassKind(True, 0, True, microbatches == 1))] = 1
    if drains:
        part: BackwardPart = "input" if schedule in SPLIT_KINDS else "whole"
        counts[kind_number(PassKind(False, 0, microbatches == 1, True, part), sends=True)] += 1
    return counts


def first_stage_counts(schedule: ScheduleKind, microbatches: int) -> Floats:
    """The first stage's passes on a chain that ends there, with all that it does last."""
    counts = outer_counts(schedule, microbatches, drains=True)
    counts[STEP_END] = 1
    if schedule == "zero_bubble":
        return counts + deferred_weight_passes(0, microbatches)
    last = PassKind(False, 0, microbatches == 1, True)
    _move(counts, kind_number(last, sends=True), kind_number(last))
    return counts


def deferred_weight_passes(stage: int, microbatches: int) -> Floats:
    """Weight-gradient passes of a zero-bubble stage after its last input part.

    One more than deferred: every input part is followed by one too.
    """
    counts, late = np.zeros(KINDS), min(stage + 1, microbatches)
    one = microbatches == 1
    first = late == microbatches and not one
    counts[kind_number(PassKind(False, 0, one, True, "weight"))] = 1
    counts[kind_number(PassKind(False, 0, False, False, "weight"))] = late - 1 - first
    counts[kind_number(PassKind(False, 0, True, False, "weight"))] += first
    return counts


def _stage_counts(
    passes: StagePasses, chunk: int, last: int, chunks: int, drains: bool
) -> tuple[Floats, Floats]:
    """Pass counts of a stage by chunk and kind, alone and paired."""
    start, stop = 0, len(passes.rows)
    for number, kind in enumerate(passes.kinds):
        if kind.chunk != chunk or kind.part == "weight":
            continue
        if kind.forward and kind.first:
            start = int(np.argmax(passes.rows == number))
        elif not kind.forward and kind.last and drains:
            stop = int(np.argmax(passes.rows == number)) + 1
    first, overlaps = _pairing(passes)
    if overlaps[start] and not first[start]:
        start -= 1
    if stop < len(first) and overlaps[stop - 1] and not first[stop]:
        stop += 1
    by_mask = []
    for mask in (~overlaps, overlaps):
        rows = passes.rows[start:stop][mask[start:stop]]
        counts = np.zeros((chunks, KINDS))
        for number, count in enumerate(np.bincount(rows, minlength=len(passes.kinds))):
            counts[passes.kinds[number].chunk, kind_number(passes.kinds[number])] += count
        by_mask.append(counts)
    return by_mask[0], by_mask[1]


def _pairing(passes: StagePasses) -> tuple[Bools, Bools]:
    sizes = passes.sizes()
    first = np.zeros(len(passes.rows), dtype=bool)
    first[np.cumsum(sizes) - sizes] = True
    return first, np.repeat(sizes > 1, sizes)
