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
from .memory import PassKind
from .stage_run import StageRun, Together, kind_of, together


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
Step = tuple[Timing, int]
"""A pass: the timing of its kind, and its micro-batch."""
Group = tuple[float, "list[Step]"]
"""Passes that start together: how long they take, and each with its own timing."""
NOT_YET = -1.0


def play(runs: list[StageRun], messages: Messages) -> None:
    """Run every stage as far as its inputs allow, back and forth, until all are through."""
    shape = (messages.positions, messages.micro_batches)
    ends = {forward: [[NOT_YET] * shape[1] for _ in range(shape[0])] for forward in (True, False)}
    pending = [(run, _player(run, messages, ends)) for run in runs]
    while pending:
        before = sum(len(run.starts_s) for run, _ in pending)
        for run, player in pending:
            player.advance(run)
        if before == sum(len(run.starts_s) for run, _ in pending):
            raise RuntimeError("the schedule waits for itself")
        pending = [(r, p) for r, p in reversed(pending) if len(r.starts_s) < len(r.order)]


def _player(
    run: StageRun, messages: Messages, ends: dict[bool, list[list[float]]]
) -> _InTurn | _Overlapping:
    """The passes of a stage with everything their timing depends on looked up."""
    last = messages.micro_batches - 1
    known: dict[tuple[object, ...], Timing] = {}
    steps: list[Step] = []
    for item in run.order:
        forward, chunk, micro_batch, part, _ = item
        key = (forward, chunk, micro_batch == 0, micro_batch == last, part)
        if key not in known:
            known[key] = _timing(run, messages, ends, kind_of(item, last))
        steps.append((known[key], micro_batch))
    return _Overlapping(run, steps, last) if run.pair_times else _InTurn(steps)


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

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps

    def advance(self, run: StageRun) -> None:
        """Run passes until one's input has not been made yet."""
        steps, starts = self._steps, run.starts_s
        clock_s, lost_s = run.end_s, run.message_s
        for place in range(len(starts), len(steps)):
            (time_s, waits_for, travel_s, own, sends_s), micro_batch = steps[place]
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


class _Overlapping:
    """A stage some of whose passes start and end together."""

    def __init__(self, run: StageRun, steps: list[Step], last_micro_batch: int) -> None:
        groups: list[Group] = []
        place = 0
        for items in together(run.order):
            kinds: Together = tuple(kind_of(item, last_micro_batch) for item in items)
            groups.append((run.time_of(kinds).time_s, steps[place : place + len(items)]))
            place += len(items)
        self._groups, self._place = groups, 0

    def advance(self, run: StageRun) -> None:
        """Run groups of passes until one's inputs have not all been made yet."""
        while self._place < len(self._groups):
            time_s, steps = self._groups[self._place]
            arrivals = [_arrival(step) for step in steps]
            arrives_s, travel_s = max(arrivals, key=lambda arrival: arrival[0])
            if any(made_s == NOT_YET for made_s, _ in arrivals):
                return
            start_s = max(run.end_s, arrives_s)
            sends_s = sum(timing[4] for timing, _ in steps)
            run.message_s += min(start_s - run.end_s, travel_s) + sends_s
            run.starts_s += [start_s] * len(steps)
            run.end_s = start_s + time_s + sends_s
            for (_, _, _, own, _), micro_batch in steps:
                own[micro_batch] = run.end_s
            self._place += 1


def _arrival(step: Step) -> tuple[float, float]:
    """When a pass's input is there (NOT_YET if it was not made), and how long it travelled."""
    (_, waits_for, travel_s, _, _), micro_batch = step
    if waits_for is None:
        return 0.0, 0.0
    made_s = waits_for[micro_batch]
    return (NOT_YET, 0.0) if made_s == NOT_YET else (made_s + travel_s, travel_s)
