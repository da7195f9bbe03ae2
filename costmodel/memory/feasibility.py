"""Memory feasibility: the upper bound of reserved bytes is within the capacity.

The relative error of the predicted ``reserved`` is taken as normal with deviation
``RELATIVE_DEVIATION``, or that of a memory calibration. At a risk of 0.05 the 95 % quantile must
fit, at 0.5 the prediction.
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
"""Assumed; live tensors agree with traced runs to 0.1 %, the allocator's share is uncertain."""
DEFAULT_RISK = 0.05
LEDGER_ROUNDING = 8
"""Bytes by which rounding each term of live tensors may lower the reserved bytes."""


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """Accept plans up to a ``risk`` of running out of memory.

    ``deviation``: relative standard deviation of measured bytes around predicted ones.
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
        """The rule with a memory calibration's deviation, if any."""
        calibration = calibration_of(measured)
        if calibration is None or calibration.memory is None:
            return self
        return replace(self, deviation=calibration.memory.deviation)

    def excess_bytes(self, row: MemoryRow) -> float:
        """Excess of the upper bound over the capacity; negative if it fits."""
        return row.reserved_bytes * self.margin - row.capacity_bytes

    def tier_budget_bytes(self, capacity_bytes: int) -> float:
        """Upper bound of bytes on a tier, where nothing but techniques allocates."""
        return (capacity_bytes + LEDGER_ROUNDING) / self.margin

    def live_budget_bytes(self, capacity_bytes: int, stack: StackSpec, communicators: int) -> float:
        """Upper bound of a device's live tensor bytes.

        ``communicators``: process groups that every plan in question has at least.
        """
        allocator = stack.allocator
        fixed = allocator.context_bytes + min_workspace_bytes(stack)
        fixed += communicators * allocator.communicator_bytes
        room = capacity_bytes / self.margin - fixed + LEDGER_ROUNDING
        min_factor = min(stack.memory.states, stack.memory.activations)
        return room / (1 + allocator.fragmentation) / min_factor
