"""FSDP unit: parameters that move together, with their bytes and traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..symbolic.lowered_pass import NO_PASS, LoweredPass
from ..symbolic.tape import WorkItem
from ..symbolic.tier_bytes import TierBytes
from .optimizers import UpdateShare

MAX_CACHED_UNITS = 4096
"""Units that a cache keeps, some ten KiB each: a search of a large space makes tens of
thousands, and next to never needs one again.
"""


class GatherBytes(NamedTuple):
    """Bytes of a gather: its buffer, the cast into it, the gathered parameters."""

    flat_bytes: int
    cast_bytes: int
    whole_bytes: int


@dataclass(frozen=True, slots=True)
class FsdpUnit:
    """Sizes and work of one unit on its fullest rank.

    ``gathers``: the bytes of its gathers, one after the other: of dense parameters, of experts
    (none where parameters are used in place). ``reduce_input_bytes`` and
    ``reduce_scratch_bytes``: buffers of a reduction, during which the last parameter's gradient
    is still held; ``replicated_bytes`` of its result are held until the pass ends.
    ``gradient_bytes``: unreduced gradients of one micro-batch; ``accumulated_bytes``: the same
    while they wait for the last one; ``shard_gradient_bytes``: reduced ones until the update.
    ``post_update``: what follows the update; ``update``: the unit's share of it. ``added`` is what
    techniques do once its gradients are complete, ``added_update`` what each does with the update,
    ``added_bytes`` what they hold from step to step, ``added_tier_bytes`` what of other tiers;
    ``fetched_by`` is the technique under which copies before gathers count.
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
    reduce_input_bytes: int
    reduce_scratch_bytes: int
    local_elements: int
    last_gradient_elements: int
    replicated_bytes: int
    gather: tuple[WorkItem, ...]
    gather_backward: tuple[WorkItem, ...]
    outer_gather: tuple[WorkItem, ...]
    outer_reduce: tuple[WorkItem, ...]
    reduce: tuple[WorkItem, ...]
    reduce_accumulated: tuple[WorkItem, ...]
    accumulate_shard: tuple[WorkItem, ...]
    upcast: tuple[WorkItem, ...]
    accumulate_upcast: tuple[WorkItem, ...]
    post_update: tuple[WorkItem, ...]
    update: UpdateShare
    partial_shards: tuple[int, ...]
    tied_bytes: int
    tied_elements: int
    added: LoweredPass = NO_PASS
    added_update: tuple[tuple[str, tuple[WorkItem, ...]], ...] = ()
    added_bytes: int = 0
    added_tier_bytes: TierBytes = ()
    fetched_by: str = ""

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

        Earlier ones were reduced away, or are kept in another number format.
        """
        return self.reduces_each_micro_batch or bool(self.upcast)
