"""Playing a step: when each stage's passes start, given their order, times and messages.

A pass starts when its stage is free and its input has arrived; a message leaves when the pass
that made it ends. Of a split backward only the input gradient waits for a message and sends
one. Passes that overlap start together, when both inputs are there, and end together.
"""

from __future__ import annotations

import numpy as np

from ..spec.plan import Plan
from ..spec.schedule import chunk_place, chunk_position
from .boundary import Side, alike_s, crossing_s, divides_alike
from .group_prices import GroupPrices
from .pass_order import pass_order
from .stage_chunk import StageChunk
from .stage_passes import PassKind
from .stage_run import StageRun


class Messages:
    """Seconds of the message that each chunk sends, forward and backward.

    Where the stack overlaps them a message travels while its sender goes on; otherwise the sender
    waits until it is over (``blocking``).
    """

    def __init__(
        self, plan: Plan, chunks: list[tuple[StageChunk, ...]], prices: GroupPrices
    ) -> None:
        self.kind = plan.program.schedule.kind
        self.stages = len(chunks)
        self.positions = len(chunks) * len(chunks[0])
        self.micro_batches = plan.program.schedule.microbatches
        self.lines = plan.program.schedule.actions
        self.blocking = not prices.whole.overlaps.pp
        self._seconds: dict[tuple[bool, int], float] = {}
        for position in range(self.positions):
            stage, virtual = chunk_place(self.kind, position, self.stages)
            chunk = chunks[stage][virtual]
            for forward, size in ((True, chunk.sends_bytes), (False, chunk.receives_bytes)):
                beyond = (position + (1 if forward else -1)) % self.positions
                peer, there = chunk_place(self.kind, beyond, self.stages)
                seconds = 0.0
                if size and peer != stage:
                    ends = chunks[peer][there]
                    seconds = _message_s(plan, prices, (stage, chunk), (peer, ends), forward)
                self._seconds[forward, position] = seconds

    def position(self, stage: int, chunk: int) -> int:
        """Which part of the model a chunk of a stage holds."""
        return chunk_position(self.kind, stage, chunk, self.stages)

    def seconds(self, forward: bool, position: int) -> float:
        """Seconds of the message that leaves the chunk at ``position``."""
        return self._seconds.get((forward, position), 0.0)


Place = tuple[int, StageChunk]
"""A stage's number, and the chunk of it at a boundary."""


def _message_s(
    plan: Plan, prices: GroupPrices, sender: Place, receiver: Place, forward: bool
) -> float:
    """Seconds of what a chunk sends another, activations forward or gradients backward."""
    stages, samples = plan.program.stages, plan.program.micro_batch_samples
    (place, chunk), (peer, other) = sender, receiver
    first, following = (chunk, other) if forward else (other, chunk)
    if all(len(stages[n].devices) == 1 for n in (place, peer)):
        own, theirs = stages[place].devices[0], stages[peer].devices[0]
        if own.count == theirs.count:
            size = chunk.sends_bytes if forward else chunk.receives_bytes
            return prices.message_s(size, own, theirs)
    before, after = stages[place if forward else peer], stages[peer if forward else place]
    ends = Side.of(before, first.layers[-1].strategy, samples)
    begins = Side.of(after, following.layers[0].strategy, samples)
    sides = (ends, begins) if forward else (begins, ends)
    if divides_alike(before, after):
        size = chunk.sends_bytes if forward else chunk.receives_bytes
        return alike_s(size, *sides, prices.message_s)
    each = ends.replica_samples[0]
    whole_bytes = first.sends_bytes * ends.strategy.sequence_split * samples // each
    return crossing_s(whole_bytes, *sides, prices.message_s)


NOT_YET = -1.0


def play(runs: list[StageRun], messages: Messages) -> None:
    """Run every stage's passes to the end: when each starts, and what messages take."""
    if any(run.passes.groups is not None for run in runs):
        _play_pairs(runs, messages)
    else:
        _play_in_turn(runs, messages)


def _play_in_turn(runs: list[StageRun], messages: Messages) -> None:
    """Stages that run one pass after another: all passes in an order that suits them."""
    chunks = messages.positions // messages.stages
    shape = (messages.kind, messages.stages, chunks, messages.micro_batches, messages.lines)
    order = pass_order(*shape)
    timings = [timing_of(run, messages, kind) for run in runs for kind in run.passes.kinds]
    times_s, travels_s, sends_s = np.array(timings)[order.kinds].T
    each = (order.before.tolist(), order.sources.tolist(), times_s.tolist(), travels_s.tolist())
    ends = [0.0]  # of no pass
    if messages.blocking:
        for before, source, time_s, travel_s, send_s in zip(*each, sends_s.tolist(), strict=True):
            free_s, arrives_s = ends[before], ends[source] + travel_s
            ends.append((arrives_s if arrives_s > free_s else free_s) + time_s + send_s)
    else:
        for before, source, time_s, travel_s in zip(*each, strict=True):
            free_s, arrives_s = ends[before], ends[source] + travel_s
            ends.append((arrives_s if arrives_s > free_s else free_s) + time_s)
    ends_s = np.array(ends)
    frees_s, arrivals_s = ends_s[order.before], ends_s[order.sources] + travels_s
    starts_s = np.maximum(frees_s, arrivals_s)
    lost_s = np.minimum(starts_s - frees_s, travels_s) + sends_s
    for run, places in zip(runs, order.places, strict=True):
        run.starts_s += starts_s[places - 1].tolist()
        run.end_s = ends[places[-1]]
        run.message_s = float(np.cumsum(lost_s[places - 1])[-1])


def timing_of(run: StageRun, messages: Messages, kind: PassKind) -> tuple[float, float, float]:
    """Seconds of a kind of pass, of what it waits for on its way, and of sending."""
    time_s = run.times[kind].time_s
    if kind.part == "weight":
        return time_s, 0.0, 0.0
    position = messages.position(run.stage, kind.chunk)
    source = position - 1 if kind.forward else position + 1
    inner = 0 <= source < messages.positions
    if messages.blocking:
        return time_s, 0.0, messages.seconds(kind.forward, position)
    return time_s, messages.seconds(kind.forward, source) if inner else 0.0, 0.0


def _play_pairs(runs: list[StageRun], messages: Messages) -> None:
    """Stages whose passes overlap: each as far as its inputs allow, back and forth."""
    shape = (messages.positions, messages.micro_batches)
    ends = {forward: [[NOT_YET] * shape[1] for _ in range(shape[0])] for forward in (True, False)}
    pending = []
    for run in runs:
        waits = [_waits(run, messages, ends, kind) for kind in run.passes.kinds]
        pending.append((run, _Overlapping(run, run.passes.groups or (), waits)))
    while pending:
        moved = sum(player.advance(run) for run, player in pending)
        if not moved:
            raise RuntimeError("the schedule waits for itself")
        pending = [(r, p) for r, p in reversed(pending) if len(r.starts_s) < p.length]


Waits = tuple["list[float] | None", float, "list[float]", float]
"""Of a kind of pass: ends of what it waits for, their travel, its own ends, time sending."""


def _waits(
    run: StageRun, messages: Messages, ends: dict[bool, list[list[float]]], kind: PassKind
) -> Waits:
    _, travel_s, sends_s = timing_of(run, messages, kind)
    if kind.part == "weight":
        return None, 0.0, [NOT_YET] * messages.micro_batches, 0.0
    position = messages.position(run.stage, kind.chunk)
    source = position - 1 if kind.forward else position + 1
    waits_for = ends[kind.forward][source] if 0 <= source < messages.positions else None
    return waits_for, travel_s, ends[kind.forward][position], sends_s


class _Overlapping:
    """A stage some of whose passes start and end together."""

    def __init__(self, run: StageRun, groups: tuple[int, ...], waits: list[Waits]) -> None:
        self._rows: list[int] = run.passes.rows.tolist()
        self._order, self._waits = run.passes.order, waits
        self.length = len(self._rows)
        found = run.passes.together
        self._groups, self._group = groups, 0
        self._sizes = [len(kinds) for kinds in found]
        self._times_s = [run.time_of(kinds).time_s for kinds in found]

    def advance(self, run: StageRun) -> bool:
        """Run groups of passes until one's inputs have not all been made yet; whether any ran."""
        rows, order, waits, starts = self._rows, self._order, self._waits, run.starts_s
        clock_s, lost_s, first = run.end_s, run.message_s, self._group
        group = first
        while group < len(self._groups):
            number, place = self._groups[group], len(starts)
            start_s, late_s = clock_s, 0.0
            sends_s = 0.0
            for at in range(place, place + self._sizes[number]):
                waits_for, travel_s, _, each_s = waits[rows[at]]
                sends_s += each_s
                if waits_for is None:
                    continue
                made_s = waits_for[order[at][2]]
                if made_s == NOT_YET:
                    run.end_s, run.message_s, self._group = clock_s, lost_s, group
                    return group > first
                if made_s + travel_s > start_s:
                    start_s = made_s + travel_s
                    late_s = min(start_s - clock_s, travel_s)
            lost_s += late_s + sends_s
            clock_s = start_s + self._times_s[number] + sends_s
            for at in range(place, place + self._sizes[number]):
                waits[rows[at]][2][order[at][2]] = clock_s
                starts.append(start_s)
            group += 1
        run.end_s, run.message_s, self._group = clock_s, lost_s, group
        return True
