"""FSDP unit: parameters moved together, with their bytes and traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...spec.cluster.stack_spec import OverlapKinds
from ...spec.report.work_items import Collective
from ..symbolic.added_update import AddedUpdate
from ..symbolic.lane_work import LaneWorks
from ..symbolic.lowered_pass import NO_PASS, LoweredPass
from ..symbolic.tape import WorkItem
from ..symbolic.tier_bytes import StateBytes
from .optimizers import UpdateShare

MAX_CACHED_UNITS = 4096
"""Units that a cache keeps, some ten KiB each: a search of a large space makes tens of
thousands, and next to never needs one again.
"""


class GatherBytes(NamedTuple):
    """Bytes of a gather: buffer, cast into it, gathered parameters."""

    flat_bytes: int
    cast_bytes: int
    whole_bytes: int


class GatherWork(NamedTuple):
    """Gathers before each forward and backward, and outer, per step."""

    forward: tuple[WorkItem, ...] = ()
    backward: tuple[WorkItem, ...] = ()
    outer: tuple[WorkItem, ...] = ()


class ReduceWork(NamedTuple):
    """Gradient reductions, and accumulation before or after them.

    ``fresh``: of one micro-batch's gradients; ``accumulated``: of several; ``outer``: per step.
    ``upcast`` casts a first micro-batch's gradients, ``accumulate_upcast`` adds a later one's,
    ``accumulate_shard`` adds reduced shards.
    """

    fresh: tuple[WorkItem, ...] = ()
    accumulated: tuple[WorkItem, ...] = ()
    outer: tuple[WorkItem, ...] = ()
    accumulate_shard: tuple[WorkItem, ...] = ()
    upcast: tuple[WorkItem, ...] = ()
    accumulate_upcast: tuple[WorkItem, ...] = ()


class ReduceBytes(NamedTuple):
    """Buffers of a reduction, which still holds the last parameter's gradient.

    ``replicated_bytes`` of its result are held until the pass ends.
    """

    input_bytes: int = 0
    scratch_bytes: int = 0
    replicated_bytes: int = 0


class WaitingSums(NamedTuple):
    """Sums of complete gradients that wait for windows of later layers' backwards.

    ``technique``: whose windows they are.
    """

    technique: str
    items: tuple[Collective, ...]


@dataclass(frozen=True, slots=True)
class FsdpUnit:
    """Sizes and work of one unit on its fullest rank.

    ``gathers``: bytes of its gathers in sequence, dense and experts (none if used in place);
    ``gather``: their work. ``gradient_bytes``: unreduced gradients of one micro-batch;
    ``accumulated_bytes``: the same while they wait for the last one; ``shard_gradient_bytes``:
    reduced ones until the update. ``post_update``: work after the update; ``update``: the unit's
    share of it. ``overlaps``: of gathers and reductions with layers. Techniques add ``added`` once
    gradients are complete, ``added_update`` with each update, and hold ``added_bytes``, on other
    tiers ``added_tier_bytes``, between steps; ``fetched_by``: the technique of copies before
    gathers and after reductions, in line. ``gather_lanes`` run before each gather, beside the layer
    before, which ``fetched_bytes`` then are on the device for; ``gradient_lanes`` beside the last
    micro-batch's backward, ``update_lanes`` one after the other beside the update. ``waiting``:
    collectives of its reduction that run in windows of other layers instead.
    """

    wrapped: bool
    gathers_each_use: bool
    reduces_each_micro_batch: bool
    parameter_bytes: int
    optimizer_bytes: int
    gathers: tuple[GatherBytes, ...]
    gradient_bytes: int
    accumulated_bytes: int
    shard_gradient_bytes: int
    reduce_bytes: ReduceBytes
    local_elements: int
    last_gradient_elements: int
    gather: GatherWork
    reduce: ReduceWork
    post_update: tuple[WorkItem, ...]
    update: UpdateShare
    partial_shards: tuple[int, ...]
    tied_bytes: int
    tied_elements: int
    overlaps: OverlapKinds
    added: LoweredPass = NO_PASS
    added_update: tuple[AddedUpdate, ...] = ()
    added_bytes: int = 0
    added_tier_bytes: tuple[StateBytes, ...] = ()
    fetched_by: str = ""
    fetched_bytes: int = 0
    gather_lanes: LaneWorks = ()
    gradient_lanes: LaneWorks = ()
    update_lanes: LaneWorks = ()
    waiting: WaitingSums | None = None

    @property
    def whole_bytes(self) -> int:
        """The gathered compute copy."""
        return sum(gather.whole_bytes for gather in self.gathers)

    @property
    def flat_bytes(self) -> int:
        """The communication buffers of all its gathers."""
        return sum(gather.flat_bytes for gather in self.gathers)

    @property
    def starts_anew(self) -> bool:
        """True if a micro-batch finds no gradients to add its own to.

        Earlier ones were reduced away, or have another number format.
        """
        return self.reduces_each_micro_batch or bool(self.reduce.upcast)
