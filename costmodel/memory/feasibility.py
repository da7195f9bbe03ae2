"""When a plan's memory fits: the upper bound of what it reserves is within the capacity.

The predicted ``reserved`` is uncertain; its relative error is taken as normal with deviation
``RELATIVE_DEVIATION``, or that of a calibration of memory. A risk of 0.05 asks that the 95 %
quantile fits, 0.5 that the prediction itself does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

from ...spec.cluster.measured import Measured, calibration_of
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.report.report import MemoryRow
from .library_workspace import min_workspace_bytes

RELATIVE_DEVIATION = 0.02
"""Assumed; live tensors agree with traced runs to 0.1 %, what the allocator adds is uncertain."""
DEFAULT_RISK = 0.05
LEDGER_ROUNDING = 8
"""Bytes by which rounding each term of live tensors may lower what is reserved."""


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """Accepts plans whose chance of running out of memory is at most ``risk``.

    ``deviation`` is the relative standard deviation of measured bytes around the predicted ones.
    """

    risk: float = DEFAULT_RISK
    deviation: float = RELATIVE_DEVIATION

    def __post_init__(self) -> None:
        if not 0 < self.risk <= 0.5:
            raise InputError("--oom-risk", self.risk, "a fraction above 0 and at most 0.5", 0.05)

    @property
    def margin(self) -> float:
        """Factor on the predicted bytes."""
        return 1 + self.deviation * NormalDist().inv_cdf(1 - self.risk)

    def measured_by(self, measured: Measured | None) -> MemoryRule:
        """The rule with the deviation of a calibration of memory, where that is what there is."""
        calibration = calibration_of(measured)
        if calibration is None or calibration.memory is None:
            return self
        return replace(self, deviation=calibration.memory.deviation)

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
        fixed = allocator.context_bytes + min_workspace_bytes(stack)
        fixed += communicators * allocator.communicator_bytes
        room = capacity_bytes / self.margin - fixed + LEDGER_ROUNDING
        least = min(stack.memory.states, stack.memory.activations)
        return room / (1 + allocator.fragmentation) / least
