"""Pipeline timing: start of each stage's passes, given order, durations and messages.

A pass starts when its stage is free and its input has arrived; a message leaves when the layers'
own work is done, before the pass's tail of reductions. In a split backward only the input gradient
waits for a message and sends one. Passes that overlap start together, when both inputs have
arrived, and end together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...spec.plan.plan import Plan
from ...spec.schedules.stage_order import chunk_location, chunk_position
from ..arrays import Floats
from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import ConcurrentPasses, PassKind
from ..pricing.group_pricer import GroupPricer
from .pass_order import PassOrder, pass_order
from .stage_messages import BoundaryStage, repartition_s, same_batch_partition, same_partition_s
from .stage_run import StageRun


class MessageTimes:
    """Seconds of each chunk's messages, forward and backward.

    Where the stack overlaps them a message travels while its sender goes on; otherwise the sender
    waits until it is over (``blocking``).
    """

    def __init__(
        self, plan: Plan, chunks: list[tuple[StageChunk, ...]], prices: GroupPricer
    ) -> None:
        self.kind = plan.program.schedule.kind
        self.stages = len(chunks)
        self.positions = len(chunks) * len(chunks[0])
        self.micro_batches = plan.program.schedule.microbatches
        self.lines = plan.program.schedule.actions
        self.blocking = not prices.whole.overlaps.pp
        self._seconds: dict[tuple[bool, int], float] = {}
        for position in range(self.positions):
            stage, virtual = chunk_location(self.kind, position, self.stages)
            chunk = chunks[stage][virtual]
            for forward, size in ((True, chunk.sends_bytes), (False, chunk.receives_bytes)):
                peer_position = (position + (1 if forward else -1)) % self.positions
                peer, peer_chunk = chunk_location(self.kind, peer_position, self.stages)
                seconds = 0.0
                if size and peer != stage:
                    receiver = chunks[peer][peer_chunk]
                    seconds = _message_s(plan, prices, (stage, chunk), (peer, receiver), forward)
                self._seconds[forward, position] = seconds

    def position(self, stage: int, chunk: int) -> int:
        """Position in the model of a stage's chunk."""
        return chunk_position(self.kind, stage, chunk, self.stages)

    def seconds(self, forward: bool, position: int) -> float:
        """Seconds of the message leaving the chunk at ``position``."""
        return self._seconds.get((forward, position), 0.0)


ChunkEnd = tuple[int, StageChunk]
"""A stage's number, and its chunk at a boundary."""


def _message_s(
    plan: Plan, prices: GroupPricer, sender: ChunkEnd, receiver: ChunkEnd, forward: bool
) -> float:
    """Seconds of a message between chunks: activations forward, gradients backward."""
    stages, samples = plan.program.stages, plan.program.micro_batch_samples
    (sender_stage, sender_chunk), (receiver_stage, receiver_chunk) = sender, receiver
    first, following = (sender_chunk, receiver_chunk) if forward else (receiver_chunk, sender_chunk)
    if all(len(stages[n].devices) == 1 for n in (sender_stage, receiver_stage)):
        sender_devices, receiver_devices = (
            stages[sender_stage].devices[0],
            stages[receiver_stage].devices[0],
        )
        if sender_devices.count == receiver_devices.count:
            size = sender_chunk.sends_bytes if forward else sender_chunk.receives_bytes
            return prices.message_s(size, sender_devices, receiver_devices)
    before, after = (
        stages[sender_stage if forward else receiver_stage],
        stages[receiver_stage if forward else sender_stage],
    )
    earlier_side = BoundaryStage.of(before, first.layers[-1].strategy, samples)
    later_side = BoundaryStage.of(after, following.layers[0].strategy, samples)
    sides = (earlier_side, later_side) if forward else (later_side, earlier_side)
    if same_batch_partition(before, after):
        size = sender_chunk.sends_bytes if forward else sender_chunk.receives_bytes
        return same_partition_s(size, *sides, prices.message_s)
    replica_samples = earlier_side.replica_samples[0]
    whole_bytes = (
        first.sends_bytes * earlier_side.strategy.sequence_split * samples // replica_samples
    )
    return repartition_s(whole_bytes, *sides, prices.message_s)


def time_pipeline(runs: list[StageRun], messages: MessageTimes) -> None:
    """Run every stage's passes: start times, and seconds lost to messages."""
    chunks = messages.positions // messages.stages
    shape = (messages.kind, messages.stages, chunks, messages.micro_batches, messages.lines)
    order = pass_order(*shape)
    width = len(order.sources)
    timings = [
        _timing(run, messages, kinds, width)
        for run in runs
        for kinds in run.passes.concurrent_groups
    ]
    times_s, tails_s, sends_s, *travels_s = np.array(timings).T[:, order.kinds]
    delays_s = message_delays_s(order, travels_s, sends_s - tails_s)
    sends_s = np.maximum(sends_s - tails_s, 0.0)  # a stage sends while it reduces
    inputs = [
        (source.tolist(), delay_s.tolist())
        for source, delay_s in zip(order.sources, delays_s, strict=True)
    ]
    ends = group_ends_s(order.before.tolist(), inputs, times_s.tolist(), sends_s.tolist())
    ends_s, indices = np.array(ends), np.arange(len(times_s))
    starts_s, waiting = group_starts_s(order, ends_s, delays_s)
    travel_s = np.where(waiting < 0, 0.0, np.array(travels_s)[waiting, indices])
    lost_s = np.minimum(starts_s - ends_s[order.before], travel_s) + sends_s
    for run, groups in zip(runs, order.places, strict=True):
        run.starts_s += np.repeat(starts_s[groups - 1], run.passes.sizes()).tolist()
        run.end_s = ends[groups[-1]]
        run.message_s = float(np.cumsum(lost_s[groups - 1])[-1])


GroupInput = tuple[list[int], list[float]]
"""For each group, the source its first or second pass waits for, and the delay after its end."""


def message_delays_s(
    order: PassOrder, travels_s: Sequence[Floats], sends_past_tail_s: Floats
) -> list[Floats]:
    """Seconds from the end of each group's sources to their messages' arrival.

    Negative where a message overtakes its sender's tail.

    Args:
        order: of the groups.
        travels_s: of the message of each group's first pass, and of its second.
        sends_past_tail_s: of each group, the seconds that its stage sends less those of its tail.
    """
    overtaken_s = np.concatenate([[0.0], np.minimum(sends_past_tail_s, 0.0)])
    return [
        travel_s + overtaken_s[sources]
        for sources, travel_s in zip(order.sources, travels_s, strict=True)
    ]


def group_ends_s(
    before: list[int], inputs: Sequence[GroupInput], times_s: list[float], sends_s: list[float]
) -> list[float]:
    """End of each concurrent group, counted from 1; 0 s stands for none.

    Args:
        before: preceding group of the same stage.
        inputs: of its first pass, and of its second where passes overlap.
        times_s: seconds of each group.
        sends_s: seconds that its stage then still sends.
    """
    ends = [0.0]
    if len(inputs) == 1:
        ((sources, delays_s),) = inputs
        for last, source, delay_s, time_s, send_s in zip(
            before, sources, delays_s, times_s, sends_s, strict=True
        ):
            free_s, arrives_s = ends[last], ends[source] + delay_s
            ends.append((arrives_s if arrives_s > free_s else free_s) + time_s + send_s)
        return ends
    (first_sources, first_delays_s), (second_sources, second_delays_s) = inputs
    for last, first_source, first_delay_s, second_source, second_delay_s, time_s, send_s in zip(
        before,
        first_sources,
        first_delays_s,
        second_sources,
        second_delays_s,
        times_s,
        sends_s,
        strict=True,
    ):
        start_s, arrives_s = ends[last], ends[first_source] + first_delay_s
        if arrives_s > start_s:
            start_s = arrives_s
        arrives_s = ends[second_source] + second_delay_s
        if arrives_s > start_s:
            start_s = arrives_s
        ends.append(start_s + time_s + send_s)
    return ends


def group_starts_s(
    order: PassOrder, ends_s: Floats, delays_s: Sequence[Floats]
) -> tuple[Floats, NDArray[np.int8]]:
    """Start of each group, and the pass whose message delays it.

    -1: none, the group waits for its stage.

    Args:
        order: of the groups.
        ends_s: from :func:`group_ends_s`.
        delays_s: from :func:`message_delays_s`.
    """
    starts_s = ends_s[order.before]
    waiting = np.full(len(starts_s), -1, dtype=np.int8)
    for number, (sources, delay_s) in enumerate(zip(order.sources, delays_s, strict=True)):
        arrives_s = ends_s[sources] + delay_s
        waiting[arrives_s > starts_s] = number
        starts_s = np.maximum(starts_s, arrives_s)
    return starts_s, waiting


def _timing(
    run: StageRun, messages: MessageTimes, kinds: ConcurrentPasses, width: int
) -> list[float]:
    timings = [timing_of(run, messages, kind) for kind in kinds]
    padded_travels_s = [travel_s for _, travel_s, _ in timings] + [0.0] * (width - len(timings))
    time = run.time_of(kinds)
    sends_s = sum(send_s for *_, send_s in timings)
    return [time.time_s, time.tail_s, sends_s, *padded_travels_s]


def timing_of(run: StageRun, messages: MessageTimes, kind: PassKind) -> tuple[float, float, float]:
    """Seconds of a kind of pass, of its input's travel, and of sending."""
    time_s = run.times[kind].time_s
    if kind.part == "weight":
        return time_s, 0.0, 0.0
    position = messages.position(run.stage, kind.chunk)
    source = position - 1 if kind.forward else position + 1
    inner = 0 <= source < messages.positions
    if messages.blocking:
        return time_s, 0.0, messages.seconds(kind.forward, position)
    return time_s, messages.seconds(kind.forward, source) if inner else 0.0, 0.0
