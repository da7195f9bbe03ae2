"""RentalPrices: hourly prices of devices and nodes; a plan's cost rate.

A device group is priced by its own name, else by its device's catalogue name. A plan pays for the
devices in its stages, and for the nodes that hold any of them; idle ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..cluster.cluster_spec import ClusterSpec, DeviceGroup
from ..units import SECONDS_PER_HOUR
from .plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalPrices:
    """A price list.

    ``currency`` per device-hour and per node-hour, by device group or device.
    """

    currency: str
    device_hour: Mapping[str, float] = field(hash=False)
    node_hour: Mapping[str, float] = field(default_factory=dict, hash=False)

    def device_per_s(self, group: DeviceGroup) -> float:
        """Currency per second of one device of a group.

        Raises:
            KeyError: if it has no price.
        """
        name = group.name if group.name in self.device_hour else group.device
        return self.device_hour[name] / SECONDS_PER_HOUR

    def node_per_s(self, group: DeviceGroup) -> float:
        """Currency per second of a node beside its devices; 0 if unpriced."""
        name = group.name if group.name in self.node_hour else group.device
        return self.node_hour.get(name, 0.0) / SECONDS_PER_HOUR

    def group_per_s(self, group: DeviceGroup, devices: int, nodes: int) -> float:
        """Currency per second of ``devices`` devices of a group in ``nodes`` nodes."""
        return devices * self.device_per_s(group) + nodes * self.node_per_s(group)

    def unpriced(self, cluster: ClusterSpec) -> DeviceGroup | None:
        """The first device group without a device price.

        None if all have one.
        """
        priced = set(self.device_hour)
        return next((g for g in cluster.groups if not {g.name, g.device} & priced), None)


def plan_per_s(plan: Plan, prices: RentalPrices) -> float:
    """Currency per second while a plan runs."""
    ranks: dict[str, set[int]] = {}
    for devices in (devices for stage in plan.program.stages for devices in stage.devices):
        members = range(devices.first_rank, devices.first_rank + devices.count)
        ranks.setdefault(devices.device_group, set()).update(members)
    total = 0.0
    for name, used_ranks in ranks.items():
        group = plan.cluster.group(name)
        nodes = len({rank // group.devices_per_node for rank in used_ranks})
        total += prices.group_per_s(group, len(used_ranks), nodes)
    return total
