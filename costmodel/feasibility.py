"""When a plan's memory fits: the upper bound of what it reserves is within the capacity.

The predicted ``reserved`` is uncertain; its relative error is taken as normal with deviation
``RELATIVE_DEVIATION``. A risk of 0.05 asks that the 95 % quantile fits, 0.5 that the prediction
itself does.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

from ..spec.errors import InputError
from ..spec.report import MemoryRow
from ..spec.stack import StackSpec

RELATIVE_DEVIATION = 0.02
"""Assumed; live tensors agree with traced runs to 0.1 %, what the allocator adds is uncertain."""
DEFAULT_RISK = 0.05


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """Accepts plans whose chance of running out of memory is at most ``risk``."""

    risk: float = DEFAULT_RISK

    def __post_init__(self) -> None:
        if not 0 < self.risk <= 0.5:
            raise InputError("--oom-risk", self.risk, "a fraction above 0 and at most 0.5", 0.05)

    @property
    def margin(self) -> float:
        """Factor on the predicted bytes."""
        return 1 + RELATIVE_DEVIATION * NormalDist().inv_cdf(1 - self.risk)

    def excess_bytes(self, row: MemoryRow) -> float:
        """How far the upper bound is over the capacity; negative where there is room."""
        return row.reserved_bytes * self.margin - row.capacity_bytes

    def live_budget_bytes(self, capacity_bytes: int, stack: StackSpec, communicators: int) -> float:
        """Bytes of live tensors that fit a device, at most (for bounds).

        Args:
            capacity_bytes: of the device.
            stack: what its allocator and libraries take.
            communicators: process groups that every plan in question has at least.
        """
        allocator = stack.allocator
        fixed = allocator.context_bytes + allocator.workspace_bytes
        fixed += communicators * allocator.communicator_bytes
        room = capacity_bytes / self.margin - fixed + 1
        return room / (1 + allocator.fragmentation)
