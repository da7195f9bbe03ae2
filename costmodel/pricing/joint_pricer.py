"""Prices on a stage of several device groups: what joins them takes as long as the slowest side.

Kernels and what stays inside a device group have that group's prices. A collective that leaves
the group ends for all its ranks at once, so it has the largest of the seconds that the sides see.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...spec.report.work_items import Collective
from ..kernel_latency.profile_table import Latency
from .collectives import outermost_level
from .pricer import Pricer


class JointPricer(Pricer):
    """Prices on the first of some device groups that hold a stage together.

    Args:
        views: prices as each of the device groups sees them, its levels up to those that join.
        joining: how many levels join the groups, the outermost of each view.
    """

    def __init__(self, views: Sequence[Pricer], joining: int) -> None:
        super().__init__(views[0].machine, views[0].stack)
        self._views = views
        self._joining = joining
        self._joined: dict[Collective, Latency] = {}

    def collective(self, item: Collective) -> Latency:
        """Seconds of one collective, the slowest side's where it leaves the device group."""
        found = self._joined.get(item)
        if found is None:
            prices = [view.collective(item) for view in self._views]
            crosses = item.ranks > 1 and any(self._leaves(item, view) for view in self._views)
            found = max(prices, key=lambda price: price.time_s) if crosses else prices[0]
            self._joined[item] = found
        return found

    def _leaves(self, item: Collective, view: Pricer) -> bool:
        crossed = outermost_level(item, view.machine)
        return any(crossed is level for level in view.machine.levels[-self._joining :])
