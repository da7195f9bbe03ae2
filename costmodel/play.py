"""Playing a step: when each stage's passes start, given their order, times and messages.

A pass starts when its stage is free and its input has arrived; a message leaves when the pass
that made it ends. Of a split backward only the input gradient waits for a message and sends
one. Passes that overlap start together, when both inputs are there, and end together.
"""

from __future__ import annotations

from ..spec.plan import Plan
from ..spec.schedule import chunk_place, chunk_position
from .group_prices import GroupPrices
from .lowering import StageChunk
from .stage_passes import PassKind, StagePasses
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
        self.blocking = not prices.whole.overlaps.pp
        places = plan.program.stages
        self._seconds: dict[tuple[bool, int], float] = {}
        for position in range(self.positions):
            stage, virtual = chunk_place(self.kind, position, self.stages)
            chunk = chunks[stage][virtual]
            for forward, size in ((True, chunk.sends_bytes), (False, chunk.receives_bytes)):
                beyond = (position + (1 if forward else -1)) % self.positions
                peer, _ = chunk_place(self.kind, beyond, self.stages)
                seconds = 0.0
                if size and peer != stage:
                    seconds = prices.message_s(size, places[stage], places[peer])
                self._seconds[forward, position] = seconds

    def position(self, stage: int, chunk: int) -> int:
        """Which part of the model a chunk of a stage holds."""
        return chunk_position(self.kind, stage, chunk, self.stages)

    def seconds(self, forward: bool, position: int) -> float:
        """Seconds of the message that leaves the chunk at ``position``."""
        return self._seconds.get((forward, position), 0.0)


Timing = tuple[float, "list[float] | None", float, "list[float]", float]
"""Of a kind of pass: duration, ends of what it waits for, their travel, own ends, time sending."""
NOT_YET = -1.0


def play(runs: list[StageRun], messages: Messages) -> None:
    """Run every stage as far as its inputs allow, back and forth, until all are through."""
    shape = (messages.positions, messages.micro_batches)
    ends = {forward: [[NOT_YET] * shape[1] for _ in range(shape[0])] for forward in (True, False)}
    pending = [(run, _player(run, messages, ends)) for run in runs]
    while pending:
        moved = sum(player.advance(run) for run, player in pending)
        if not moved:
            raise RuntimeError("the schedule waits for itself")
        pending = [(r, p) for r, p in reversed(pending) if len(r.starts_s) < p.length]


def _player(
    run: StageRun, messages: Messages, ends: dict[bool, list[list[float]]]
) -> _InTurn | _Overlapping:
    """The passes of a stage with everything their timing depends on looked up."""
    timings = [_timing(run, messages, ends, kind) for kind in run.passes.kinds]
    if run.passes.groups is None:
        return _InTurn(run.passes, timings)
    return _Overlapping(run, run.passes.groups, timings)


def _timing(
    run: StageRun, messages: Messages, ends: dict[bool, list[list[float]]], kind: PassKind
) -> Timing:
    """What the timing of a kind of pass depends on."""
    time_s = run.times[kind].time_s
    if kind.part == "weight":
        return time_s, None, 0.0, [NOT_YET] * messages.micro_batches, 0.0
    position = messages.position(run.stage, kind.chunk)
    source = position - 1 if kind.forward else position + 1
    inner = 0 <= source < messages.positions
    return (
        time_s,
        ends[kind.forward][source] if inner else None,
        0.0 if messages.blocking else messages.seconds(kind.forward, source),
        ends[kind.forward][position],
        messages.seconds(kind.forward, position) if messages.blocking else 0.0,
    )


class _InTurn:
    """A stage that runs one pass after another."""

    def __init__(self, passes: StagePasses, timings: list[Timing]) -> None:
        self._rows: list[int] = passes.rows.tolist()
        self._order, self._timings = passes.order, timings
        self.length = len(self._rows)

    def advance(self, run: StageRun) -> bool:
        """Run passes until one's input has not been made yet; whether there were any."""
        rows, order, timings, starts = self._rows, self._order, self._timings, run.starts_s
        clock_s, lost_s, first = run.end_s, run.message_s, len(starts)
        for place in range(first, self.length):
            time_s, waits_for, travel_s, own, sends_s = timings[rows[place]]
            micro_batch = order[place][2]
            start_s = clock_s
            if waits_for is not None:
                made_s = waits_for[micro_batch]
                if made_s == NOT_YET:
                    break
                arrives_s = made_s + travel_s
                if arrives_s > clock_s:
                    lost_s += min(arrives_s - clock_s, travel_s)
                    start_s = arrives_s
            starts.append(start_s)
            clock_s = start_s + time_s + sends_s
            lost_s += sends_s
            own[micro_batch] = clock_s
        run.end_s, run.message_s = clock_s, lost_s
        return len(starts) > first


class _Overlapping:
    """A stage some of whose passes start and end together."""

    def __init__(self, run: StageRun, groups: tuple[int, ...], timings: list[Timing]) -> None:
        self._rows: list[int] = run.passes.rows.tolist()
        self._order, self._timings = run.passes.order, timings
        self.length = len(self._rows)
        found = run.passes.together
        self._groups, self._group = groups, 0
        self._sizes = [len(kinds) for kinds in found]
        self._times_s = [run.time_of(kinds).time_s for kinds in found]

    def advance(self, run: StageRun) -> bool:
        """Run groups of passes until one's inputs have not all been made yet; whether any ran."""
        rows, order, timings, starts = self._rows, self._order, self._timings, run.starts_s
        clock_s, lost_s, first = run.end_s, run.message_s, self._group
        group = first
        while group < len(self._groups):
            number, place = self._groups[group], len(starts)
            start_s, late_s = clock_s, 0.0
            sends_s = 0.0
            for at in range(place, place + self._sizes[number]):
                _, waits_for, travel_s, _, each_s = timings[rows[at]]
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
                timings[rows[at]][3][order[at][2]] = clock_s
                starts.append(start_s)
            group += 1
        run.end_s, run.message_s, self._group = clock_s, lost_s, group
        return True
