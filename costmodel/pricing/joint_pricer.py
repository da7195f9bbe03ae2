"""Prices of a multi-group stage: collectives between groups at the slowest side.

Kernels and collectives inside a device group have its prices. One that leaves the group ends for
all at once, so it takes the sides' largest seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...spec.report.work_items import Collective
from ..kernel_latency.profile_table import Latency
from .collectives import outermost_level
from .pricer import Pricer


class JointPricer(Pricer):
    """Prices on the first of several device groups of one stage.

    ``views``: prices as seen by each; ``joining``: number of levels that join the groups, the
    outermost of each view.
    """

    def __init__(self, views: Sequence[Pricer], joining: int) -> None:
        super().__init__(views[0].machine, views[0].stack)
        self._views = views
        self._joining = joining
        self._slowest: dict[Collective, Latency] = {}

    def collective(self, item: Collective) -> Latency:
        """Seconds of a collective, the slowest side's if between groups."""
        latency = self._slowest.get(item)
        if latency is None:
            prices = [view.collective(item) for view in self._views]
            crosses = item.ranks > 1 and any(self._leaves(item, view) for view in self._views)
            latency = max(prices, key=lambda price: price.time_s) if crosses else prices[0]
            self._slowest[item] = latency
        return latency

    def _leaves(self, item: Collective, view: Pricer) -> bool:
        crossed = outermost_level(item, view.machine)
        return any(crossed is level for level in view.machine.levels[-self._joining :])
