"""Seconds of what crosses between two stages for one micro-batch, and between which ranks.

Stages that cut the batch alike send rank to rank: as long as the slowest pair. Others send
samples to whoever needs them (:mod:`stage_messages`): a rank's messages follow one another
on its link, and the boundary takes as long as the rank that sends or receives longest. Every
message has the seconds that it takes alone, so none of this shrinks when a link gets slower.
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
"""Seconds of a message of so many bytes between ranks of two parts of stages."""


class BoundaryStage(NamedTuple):
    """A stage at a boundary: devices, samples of each group, strategy of the layout there."""

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
        parts = zip(self.devices, self.samples, strict=True)
        return [taken // (part.count // self.strategy.width) for part, taken in parts]


def same_partition_s(
    size_bytes: int, sender: BoundaryStage, receiver: BoundaryStage, pair: PairSeconds
) -> float:
    """Seconds between stages that cut the batch alike: the slowest pair of ranks.

    Args:
        size_bytes: of a message of the first device group's ranks.
        sender: the stage that sends.
        receiver: the stage that gets it.
        pair: seconds of one message.
    """
    places = zip(sender.devices, receiver.devices, strict=True)
    each = sender.replica_samples
    return max(
        pair(size_bytes * own // each[0], a, b) for own, (a, b) in zip(each, places, strict=True)
    )


def repartition_s(
    whole_bytes: int, sender: BoundaryStage, receiver: BoundaryStage, pair: PairSeconds
) -> float:
    """Seconds between stages that cut the batch differently.

    Args:
        whole_bytes: of a micro-batch's activations over all samples and tokens.
        sender: the stage that sends.
        receiver: the stage that gets it.
        pair: seconds of one message.
    """
    known: dict[tuple[int, int, int], float] = {}
    loads: dict[tuple[bool, int, int], float] = {}
    samples = sum(sender.samples)
    for load in _rank_transfers(sender, receiver):
        size = whole_bytes * load.samples * load.tokens[0] // (samples * load.tokens[1])
        key = (size, load.source[0], load.target[0])
        if key not in known:
            places = sender.devices[load.source[0]], receiver.devices[load.target[0]]
            known[key] = pair(size, *places)
        for sends, (_, replica, part) in ((True, load.source), (False, load.target)):
            times = load.serves if sends else 1
            place = (sends, replica, part)
            loads[place] = loads.get(place, 0.0) + times * known[key]
    return max(loads.values())


class _RankTransfer(NamedTuple):
    """What one rank sends another: samples, and a fraction of their tokens.

    ``source`` and ``target``: device group, replica of the stage, part of the tokens. ``serves``:
    ranks with equal blocks that the busiest of the source's equal ranks sends to.
    """

    source: tuple[int, int, int]
    target: tuple[int, int, int]
    samples: int
    tokens: tuple[int, int]
    serves: int


@lru_cache(maxsize=256)
def _rank_transfers(sender: BoundaryStage, receiver: BoundaryStage) -> tuple[_RankTransfer, ...]:
    held, wanted = _replicas(sender), _replicas(receiver)
    holds, wants = sender.strategy.sequence_split, receiver.strategy.sequence_split
    copies = sender.strategy.width // holds, receiver.strategy.width // wants
    serves = -(-copies[1] // copies[0])
    overlaps = list(_token_overlaps(sender.strategy, receiver.strategy))
    units = _units(sender.strategy, receiver.strategy)
    return tuple(
        _RankTransfer((group, source, q), (other, target, p), both, (tokens, units), serves)
        for source, (group, has) in enumerate(held)
        for target, (other, needs) in _meeting(wanted, has)
        for both in [_count(has.intersection(needs))]
        for q, p, tokens in overlaps
    )


def _replicas(side: BoundaryStage) -> list[tuple[int, IndexRange]]:
    """Device group and samples of every replica of a stage, in order."""
    found, start = [], 0
    for number, each in enumerate(side.replica_samples):
        for _ in range(side.devices[number].count // side.strategy.width):
            found.append((number, IndexRange(start, start + each)))
            start += each
    return found


def _meeting(
    wanted: list[tuple[int, IndexRange]], has: IndexRange
) -> Iterator[tuple[int, tuple[int, IndexRange]]]:
    """The replicas that need some of these samples, with their numbers."""
    for number, (group, needs) in enumerate(wanted):
        if needs.first < has.end and has.first < needs.end:
            yield number, (group, needs)


def _token_overlaps(holds: LayerStrategy, wants: LayerStrategy) -> Iterator[tuple[int, int, int]]:
    """Parts of a sequence that two layouts have in common, by parts of each, in :func:`_units`."""
    units = _units(holds, wants)
    held, wanted = _parts(holds, units), _parts(wants, units)
    for q, own in enumerate(held):
        for p, other in enumerate(wanted):
            if tokens := count(intersect_ranges(own, other)):
                yield q, p, tokens


def _units(holds: LayerStrategy, wants: LayerStrategy) -> int:
    """Equal pieces of a sequence of which the parts of both layouts have whole ones."""
    return 2 * math.lcm(holds.width, wants.width)


def _parts(strategy: LayerStrategy, units: int) -> list[IndexRanges]:
    """The different parts of a sequence that a replica's ranks hold."""
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
