"""Objectives: the seconds of a step times a factor of its shape.

Throughput has factor 1, cost per token the price of the devices in use, decided by the shape: cost
= Σ prices x step time / tokens, with fixed tokens of a step. So a proven bound on a shape's time,
times the factor, bounds its cost, and one search serves both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from ...spec.cluster.cluster_spec import DeviceGroup
from ...spec.plan.rental_prices import RentalPrices
from .pipeline_shape import PipelineShape


class Objective(Protocol):
    """A value to minimize."""

    def factor(self, shape: PipelineShape) -> float:
        """Value of a second of this shape, positive and finite."""
        ...

    def floor(self, floor_s: float, fixed_s: float, devices: int) -> float:
        """Lower bound on plans on up to ``devices`` devices.

        Args:
            floor_s: minimum seconds of every plan.
            fixed_s: the part independent of devices; the rest is shared evenly.
            devices: of the cluster.
        """
        ...


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step: throughput."""

    def factor(self, shape: PipelineShape) -> float:
        """1, whatever the shape."""
        return 1.0

    def floor(self, floor_s: float, fixed_s: float, devices: int) -> float:
        """The seconds themselves."""
        return floor_s


@dataclass(frozen=True, slots=True)
class StepCost:
    """Currency of a step, on plans with one group's devices in order."""

    prices: RentalPrices
    group: DeviceGroup

    def factor(self, shape: PipelineShape) -> float:
        """Currency per second of the used devices and their nodes."""
        used = shape.stages * shape.ranks
        nodes = math.ceil(used / self.group.devices_per_node)
        return self.prices.group_per_s(self.group, used, nodes)

    def floor(self, floor_s: float, fixed_s: float, devices: int) -> float:
        """One device for all seconds; the shared part in device-seconds."""
        shared_s = max(0.0, floor_s - fixed_s) * devices
        return max(floor_s, shared_s) * self.prices.device_per_s(self.group)
