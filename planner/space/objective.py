"""Objectives: the seconds of a step times a factor of its shape.

For throughput the factor is 1. For cost per token it is the price of the devices in use, which
the shape alone decides: cost = Σ prices x step time / tokens, and the tokens of a step are fixed.
So a proven bound on the time of a shape's plans, times the factor, bounds their cost, and one
search serves both.
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
        """Value of a second of a step of this shape, positive and finite."""
        ...

    def floor(self, floor_s: float, fixed_s: float, devices: int) -> float:
        """A lower bound of the value of plans on up to ``devices`` devices.

        Args:
            floor_s: minimum seconds of every plan.
            fixed_s: the part of them that more devices do not shorten; the rest is shared evenly.
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
    """Currency of a step, on plans that take devices of one group in order.

    Args:
        prices: with one for the group's devices.
        group: whose devices are used.
    """

    prices: RentalPrices
    group: DeviceGroup

    def factor(self, shape: PipelineShape) -> float:
        """Currency per second of the devices in use, and of the nodes that hold them."""
        used = shape.stages * shape.ranks
        nodes = math.ceil(used / self.group.devices_per_node)
        return self.prices.group_per_s(self.group, used, nodes)

    def floor(self, floor_s: float, fixed_s: float, devices: int) -> float:
        """At least one device for all seconds; the shared part in as many device-seconds."""
        shared_s = max(0.0, floor_s - fixed_s) * devices
        return max(floor_s, shared_s) * self.prices.device_per_s(self.group)
