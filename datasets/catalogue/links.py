"""Link rates of a cluster's levels, from fabrics or typed figures.

A level names a fabric; a rate or latency typed on the level replaces the fabric's nominal rate or
step latency, and the fabric's efficiencies still apply. A network level gives each device its
share of the node's adapters, never more than the device's own bus to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.cluster.cluster_spec import ClusterSpec, LevelName, LinkLevel
from .device import device
from .fabric import Fabric, Regime, fabric, ring_steps
from .source_kind import TYPED


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRates:
    """The rates of one level of a cluster.

    ``bandwidth_bytes_per_s`` is nominal, one direction of one device, all devices of the node
    sending at once. ``typed_latency_s`` is a person's seconds a step. ``oversubscription`` 2
    leaves half of the bandwidth when every device sends out of its group at once.
    ``setup_factor`` multiplies the seconds before the first byte (what-if questions).
    """

    level: LevelName
    group_size: int
    fabric: Fabric
    bandwidth_bytes_per_s: float
    typed_latency_s: float | None
    oversubscription: float
    source: str
    setup_factor: float = 1.0

    @property
    def duplex(self) -> bool:
        """True if both directions run at once."""
        return self.fabric.duplex

    @property
    def latency_s(self) -> float:
        """Seconds of one step of small messages."""
        typed_s = self.typed_latency_s
        return (self.fabric.latency_s if typed_s is None else typed_s) * self.setup_factor

    @property
    def efficiency(self) -> float:
        """Fraction of the bandwidth that large messages reach."""
        return self.fabric.efficiency

    def regimes(self, kind: str, ranks: int) -> tuple[Regime, Regime]:
        """The small and the bulk regime of a collective (see :mod:`fabric`)."""
        small, bulk = self.fabric.regimes(kind, ranks)
        if self.typed_latency_s is not None:
            steps_s = ring_steps(kind, ranks) * self.typed_latency_s
            small = Regime(setup_s=self.fabric.launch_s + steps_s, efficiency=small.efficiency)
            bulk = Regime(setup_s=self.fabric.bulk_launch_s + steps_s, efficiency=bulk.efficiency)
        if self.setup_factor == 1.0:
            return small, bulk
        return self._scaled(small), self._scaled(bulk)

    def _scaled(self, regime: Regime) -> Regime:
        return Regime(setup_s=regime.setup_s * self.setup_factor, efficiency=regime.efficiency)


def link_rates(cluster: ClusterSpec, level: LinkLevel) -> LinkRates:
    """The rates of ``level``.

    Device and node counts are those of the first device group.

    Raises:
        InputError: the level's fabric or the group's device is not in the catalogue.
    """
    group = cluster.groups[0]
    level_fabric = fabric(level.fabric, where=f"cluster.levels.{level.level}.fabric")
    bus_bytes_per_s = device(group.device, where="cluster.groups.0.device").host_link_bytes_per_s
    rate = level_fabric.device_bandwidth_bytes_per_s(group.devices_per_node, bus_bytes_per_s)
    source = level_fabric.sources["bandwidth_bytes_per_s"]
    if level.bandwidth_bytes_per_s is not None:
        rate, source = level.bandwidth_bytes_per_s, TYPED
    return LinkRates(
        level=level.level,
        group_size=level.group_size,
        fabric=level_fabric,
        bandwidth_bytes_per_s=rate,
        typed_latency_s=level.latency_s,
        oversubscription=level.oversubscription,
        source=source,
    )
