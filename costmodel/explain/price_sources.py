"""Seconds of lowered work by term and by source of the price.

Every item counts alone, without overlap, unlike in a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ...spec.report.work_items import Kernel
from ..kernel_latency.profile_table import Source
from ..lowering.layer_lowering import LoweredLayer
from ..pricing.pricer import Pricer
from ..sharding.fsdp_unit import FsdpUnit
from ..symbolic.tape import WorkItem

SOURCES: tuple[Source, ...] = ("measured", "learned", "analytic")
SourceSeconds = Mapping[str, Mapping[Source, float]]
"""Term of the breakdown -> source -> seconds."""


class SourceSum:
    """Sum seconds by term and source."""

    def __init__(self, pricer: Pricer) -> None:
        self._pricer = pricer
        self._seconds: dict[str, dict[Source, float]] = defaultdict(
            lambda: dict.fromkeys(SOURCES, 0.0)
        )

    def add_layer(self, lowered: LoweredLayer, times: int = 1) -> None:
        """Add ``times`` micro-batches through a layer, forward and backward."""
        for entry in (*lowered.forward.entries, *lowered.backward.entries):
            self._add(entry.work, entry.breakdown_term, times)

    def add_unit(self, unit: FsdpUnit, times: int = 1) -> None:
        """Add a unit's sharding traffic in a step of one micro-batch."""
        backward_gather = unit.gather.backward if unit.gathers_each_use else ()
        for item in (*unit.gather.forward, *backward_gather, *unit.reduce.fresh, *unit.post_update):
            term = "elementwise" if isinstance(item, Kernel) else "exposed_dp"
            self._add(item, term, times)

    def add_update(self, work: Iterable[WorkItem]) -> None:
        """Count the work of an update as that of the optimizer."""
        for item in work:
            self._add(item, "optimizer", 1)

    def _add(self, item: WorkItem, term: str, times: int) -> None:
        pricer = self._pricer
        price = pricer.kernel(item) if isinstance(item, Kernel) else pricer.collective(item)
        self._seconds[term][price.source] += price.time_s * times

    def seconds(self) -> SourceSeconds:
        """Sums so far."""
        return self._seconds
