"""Seconds of one micro-batch's messages between two stages.

Stages with the same batch partition send rank to rank: as long as the slowest pair. Others send
samples to the ranks that need them: a rank's messages follow one another on its link, and the
boundary takes as long as the rank that sends or receives longest. Every message takes its seconds
alone, so none of this shrinks when a link gets slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ...spec.parallel.batch_partition import IndexRange, group_samples, same_batch_partition
from ...spec.parallel.sequence_partition import IndexRanges, count, intersect_ranges, local_tokens
from ...spec.plan.plan import Stage, StageDevices
from ...spec.strategy import LayerStrategy

PairSeconds = Callable[[int, StageDevices, StageDevices], float]
"""Seconds of a message of so many bytes between ranks of two stages' devices."""


class BoundaryStage(NamedTuple):
    """A stage at a boundary: devices, samples of each group, strategy there."""

    devices: tuple[StageDevices, ...]
    samples: tuple[int, ...]
    strategy: LayerStrategy

    @classmethod
    def of(cls, stage: Stage, strategy: LayerStrategy, samples: int) -> BoundaryStage:
        """A stage around a layer, in a micro-batch of so many samples."""
        return cls(stage.devices, group_samples(stage, samples), strategy)

    @property
    def replica_samples(self) -> list[int]:
        """Samples of a replica of each device group."""
        groups = zip(self.devices, self.samples, strict=True)
        return [samples // (devices.count // self.strategy.width) for devices, samples in groups]


def same_partition_s(
    size_bytes: int, sender: BoundaryStage, receiver: BoundaryStage, pair: PairSeconds
) -> float:
    """Seconds between stages with the same batch partition: the slowest pair of ranks.

    Args:
        size_bytes: of a message of the first device group's ranks.
        sender: the sending stage.
        receiver: the receiving stage.
        pair: seconds of one message.
    """
    device_pairs = zip(sender.devices, receiver.devices, strict=True)
    samples = sender.replica_samples
    return max(
        pair(size_bytes * replica // samples[0], a, b)
        for replica, (a, b) in zip(samples, device_pairs, strict=True)
    )


def repartition_s(
    whole_bytes: int, sender: BoundaryStage, receiver: BoundaryStage, pair: PairSeconds
) -> float:
    """Seconds between stages with different batch partitions.

    Args:
        whole_bytes: of a micro-batch's activations over all samples and tokens.
        sender: the sending stage.
        receiver: the receiving stage.
        pair: seconds of one message.
    """
    cache: dict[tuple[int, int, int], float] = {}
    loads: dict[tuple[bool, int, int], float] = {}
    samples = sum(sender.samples)
    for load in _rank_transfers(sender, receiver):
        size = whole_bytes * load.samples * load.tokens[0] // (samples * load.tokens[1])
        key = (size, load.source[0], load.target[0])
        if key not in cache:
            devices = sender.devices[load.source[0]], receiver.devices[load.target[0]]
            cache[key] = pair(size, *devices)
        for sends, (_, replica, part) in ((True, load.source), (False, load.target)):
            messages = load.fan_out if sends else 1
            rank_key = (sends, replica, part)
            loads[rank_key] = loads.get(rank_key, 0.0) + messages * cache[key]
    return max(loads.values())


class _RankTransfer(NamedTuple):
    """Samples, and a fraction of their tokens, between two ranks.

    ``source`` and ``target``: device group, replica of the stage, part of the tokens. ``fan_out``:
    ranks with equal blocks that the busiest of the source's equal ranks sends to.
    """

    source: tuple[int, int, int]
    target: tuple[int, int, int]
    samples: int
    tokens: tuple[int, int]
    fan_out: int


@lru_cache(maxsize=256)
def _rank_transfers(sender: BoundaryStage, receiver: BoundaryStage) -> tuple[_RankTransfer, ...]:
    senders, receivers = _replicas(sender), _replicas(receiver)
    sender_split, receiver_split = sender.strategy.sequence_split, receiver.strategy.sequence_split
    copies = sender.strategy.width // sender_split, receiver.strategy.width // receiver_split
    fan_out = -(-copies[1] // copies[0])
    overlaps = list(_token_overlaps(sender.strategy, receiver.strategy))
    units = _units(sender.strategy, receiver.strategy)
    return tuple(
        _RankTransfer(
            (group, source, sender_part),
            (other, target, receiver_part),
            samples,
            (tokens, units),
            fan_out,
        )
        for source, (group, held_samples) in enumerate(senders)
        for target, (other, needed_samples) in _meeting(receivers, held_samples)
        for samples in [_count(held_samples.intersection(needed_samples))]
        for sender_part, receiver_part, tokens in overlaps
    )


def _replicas(side: BoundaryStage) -> list[tuple[int, IndexRange]]:
    replicas, start = [], 0
    for number, samples in enumerate(side.replica_samples):
        for _ in range(side.devices[number].count // side.strategy.width):
            replicas.append((number, IndexRange(start, start + samples)))
            start += samples
    return replicas


def _meeting(
    receivers: list[tuple[int, IndexRange]], held_samples: IndexRange
) -> Iterator[tuple[int, tuple[int, IndexRange]]]:
    for number, (group, needed_samples) in enumerate(receivers):
        if needed_samples.first < held_samples.end and held_samples.first < needed_samples.end:
            yield number, (group, needed_samples)


def _token_overlaps(before: LayerStrategy, after: LayerStrategy) -> Iterator[tuple[int, int, int]]:
    """Common parts of a sequence in two layouts, in :func:`_units`."""
    units = _units(before, after)
    parts_before, parts_after = _parts(before, units), _parts(after, units)
    for sender_part, part_before in enumerate(parts_before):
        for receiver_part, part_after in enumerate(parts_after):
            if tokens := count(intersect_ranges(part_before, part_after)):
                yield sender_part, receiver_part, tokens


def _units(before: LayerStrategy, after: LayerStrategy) -> int:
    return 2 * math.lcm(before.width, after.width)


def _parts(strategy: LayerStrategy, units: int) -> list[IndexRanges]:
    step = strategy.width // strategy.sequence_split
    return [local_tokens(strategy, rank, units) for rank in range(0, strategy.width, step)]


def _count(span: IndexRange) -> int:
    return span.end - span.first


__all__ = [
    "BoundaryStage",
    "PairSeconds",
    "repartition_s",
    "same_batch_partition",
    "same_partition_s",
]
