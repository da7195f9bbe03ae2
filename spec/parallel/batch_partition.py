"""Which samples of a micro-batch each rank of a stage works on.

A stage's device groups take their shares of a micro-batch in the order in which the stage lists
them; inside a group the replicas of a layer take equal, consecutive parts. Without shares every
rank counts the same. Executor and cost model read the same definitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..plan.plan import Stage, StageDevices
    from ..strategy import LayerStrategy

SHARE_ERROR = 1e-6
"""How far a typed share may be off, as a fraction of the micro-batch."""


class IndexRange(NamedTuple):
    """The numbers ``first`` to before ``end``, of samples or tokens."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """How many."""
        return self.end - self.first

    def intersection(self, other: IndexRange) -> IndexRange:
        """The numbers in both; empty, with ``end`` equal to ``first``, where they do not meet."""
        first = max(self.first, other.first)
        return IndexRange(first, max(first, min(self.end, other.end)))


def batch_share(stage: Stage, part: StageDevices) -> float:
    """The fraction of a micro-batch's samples that a device group of the stage takes."""
    return part.count / stage.device_count if part.batch_share is None else part.batch_share


def group_samples(stage: Stage, samples: int) -> tuple[int, ...]:
    """Samples of a micro-batch that each device group of the stage takes, to the nearest whole."""
    return tuple(round(batch_share(stage, part) * samples) for part in stage.devices)


def batch_share_violation(stage: Stage, samples: int) -> str | None:
    """Why the stage's shares cut no micro-batch into whole samples; None if they do.

    Args:
        stage: the stage.
        samples: of a micro-batch over the whole stage.
    """
    taken = group_samples(stage, samples)
    for part, whole in zip(stage.devices, taken, strict=True):
        share = batch_share(stage, part)
        if abs(share * samples - whole) > SHARE_ERROR * samples or not whole:
            return (
                f"batch_share {share:g} of {part.device_group} is {share * samples:g} of the "
                f"micro-batch's {samples} samples; whole samples, at least one, are allowed"
            )
    if sum(taken) != samples:
        total = sum(batch_share(stage, part) for part in stage.devices)
        return f"the stage's batch shares add up to {total:g}, not to 1"
    return None


def batch_partition_violation(stage: Stage, strategy: LayerStrategy, samples: int) -> str | None:
    """Why a layer's replicas get no equal parts inside each device group; None if they do."""
    if reason := batch_share_violation(stage, samples):
        return reason
    width = strategy.width
    for part, taken in zip(stage.devices, group_samples(stage, samples), strict=True):
        name = part.device_group
        if part.count % width:
            return f"tp x cp {width} does not divide the {part.count} ranks of {name}"
        if taken % (part.count // width):
            replicas = part.count // width
            return f"dp {replicas} of {name} does not divide its {taken} samples of a micro-batch"
    return None


def batch_partition(stage: Stage, strategy: LayerStrategy, samples: int) -> tuple[IndexRange, ...]:
    """The samples of a micro-batch that each rank of a stage works on in a layer.

    Args:
        stage: its device groups.
        strategy: of the layer; ranks that split its tensors work on the same samples.
        samples: of a micro-batch over the whole stage; the parts come out whole
            (:func:`batch_partition_violation`).

    Returns:
        By rank of the stage.
    """
    found: list[IndexRange] = []
    start = 0
    for part, taken in zip(stage.devices, group_samples(stage, samples), strict=True):
        each = taken // (part.count // strategy.width)
        for rank in range(part.count):
            first = start + rank // strategy.width * each
            found.append(IndexRange(first, first + each))
        start += taken
    return tuple(found)


def same_batch_partition(stage: Stage, other: Stage) -> bool:
    """Whether two stages cut every micro-batch alike, rank by rank."""
    return [(part.count, batch_share(stage, part)) for part in stage.devices] == [
        (part.count, batch_share(other, part)) for part in other.devices
    ]
