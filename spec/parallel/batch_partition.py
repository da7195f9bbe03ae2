"""Samples of a micro-batch on each rank of a stage.

A stage's device groups take their shares of a micro-batch in the order in which the stage lists
them; inside a group the replicas of a layer take equal, consecutive parts. Without shares every
rank takes the same. Executor and cost model both read these definitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ..strategy import LayerStrategy

SHARE_ERROR = 1e-6
"""Tolerance of a typed share, as a fraction of the micro-batch."""


class DeviceShare(Protocol):
    """One group's devices in a stage, and their share."""

    @property
    def device_group(self) -> str:
        """Name of the device group."""
        ...

    @property
    def count(self) -> int:
        """Number of devices."""
        ...

    @property
    def batch_share(self) -> float | None:
        """Typed fraction of the samples; None: by number of devices."""
        ...


class SharedStage(Protocol):
    """The view of ``spec.plan.plan.Stage`` that partitions of the batch need."""

    @property
    def devices(self) -> Sequence[DeviceShare]:
        """Device groups in their order."""
        ...

    @property
    def device_count(self) -> int:
        """Devices of all groups."""
        ...


class IndexRange(NamedTuple):
    """The numbers ``first`` to before ``end``, of samples or tokens."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """Number of samples or tokens."""
        return self.end - self.first

    def intersection(self, other: IndexRange) -> IndexRange:
        """The common numbers.

        Empty, with ``end`` equal to ``first``, if there are none.
        """
        first = max(self.first, other.first)
        return IndexRange(first, max(first, min(self.end, other.end)))


def batch_share(stage: SharedStage, group: DeviceShare) -> float:
    """The fraction of a micro-batch's samples for one device group."""
    return group.count / stage.device_count if group.batch_share is None else group.batch_share


def group_samples(stage: SharedStage, samples: int) -> tuple[int, ...]:
    """Samples of a micro-batch for each device group, to the nearest whole."""
    return tuple(round(batch_share(stage, group) * samples) for group in stage.devices)


def batch_share_violation(stage: SharedStage, samples: int) -> str | None:
    """Reason why shares give no whole samples, or None."""
    rounded_samples = group_samples(stage, samples)
    for group, rounded in zip(stage.devices, rounded_samples, strict=True):
        share = batch_share(stage, group)
        if abs(share * samples - rounded) > SHARE_ERROR * samples or not rounded:
            return (
                f"batch_share {share:g} of {group.device_group} is {share * samples:g} of the "
                f"micro-batch's {samples} samples; whole samples, at least one, are allowed"
            )
    if sum(rounded_samples) != samples:
        total = sum(batch_share(stage, group) for group in stage.devices)
        return f"the stage's batch shares add up to {total:g}, not to 1"
    return None


def batch_partition_violation(
    stage: SharedStage, strategy: LayerStrategy, samples: int
) -> str | None:
    """Reason why replicas get unequal parts in a device group, or None."""
    if reason := batch_share_violation(stage, samples):
        return reason
    width = strategy.width
    for group, assigned in zip(stage.devices, group_samples(stage, samples), strict=True):
        name = group.device_group
        if group.count % width:
            return f"tp x cp {width} does not divide the {group.count} ranks of {name}"
        if assigned % (group.count // width):
            replicas = group.count // width
            return (
                f"dp {replicas} of {name} does not divide its {assigned} samples of a micro-batch"
            )
    return None


def batch_partition(
    stage: SharedStage, strategy: LayerStrategy, samples: int
) -> tuple[IndexRange, ...]:
    """Samples of a micro-batch on each rank of a stage.

    Args:
        stage: its device groups.
        strategy: of the layer; ranks that split its tensors work on the same samples.
        samples: of a micro-batch over the whole stage; legal by
            :func:`batch_partition_violation`.

    Returns:
        By rank of the stage.
    """
    ranges: list[IndexRange] = []
    start = 0
    for group, share in zip(stage.devices, group_samples(stage, samples), strict=True):
        rank_samples = share // (group.count // strategy.width)
        for rank in range(group.count):
            first = start + rank // strategy.width * rank_samples
            ranges.append(IndexRange(first, first + rank_samples))
        start += share
    return tuple(ranges)


def same_batch_partition(stage: SharedStage, other: SharedStage) -> bool:
    """True if two stages partition every micro-batch alike, rank by rank."""
    return [(group.count, batch_share(stage, group)) for group in stage.devices] == [
        (group.count, batch_share(other, group)) for group in other.devices
    ]
