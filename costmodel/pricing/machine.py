"""Machine: a cluster's catalogue names resolved to rates and measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ...datasets.catalogue.device import CPU, Device, device
from ...datasets.catalogue.links import LinkRates, link_rates
from ...datasets.catalogue.node import Node, nodes, usual_node
from ...spec.cluster.calibration import SHIPPED, Calibration, Factors
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.learned_residual import LearnedResidual
from ...spec.cluster.machine_profile import MachineProfile
from ...spec.cluster.measured import Measured, calibration_of, profile_of
from .rate_changes import NO_RATE_CHANGES, RateChanges

NODE_LEVELS = ("intra_pair", "intra_node")


@dataclass(frozen=True)
class Machine:
    """Rates of a homogeneous cluster, as pricing needs them.

    ``levels`` go from the innermost out; ``link_span`` limits them, for work that stays inside. A
    measured ``profile`` replaces catalogue figures; factors of a ``calibration`` multiply them;
    ``rates`` are a question's changes.
    """

    cluster: ClusterSpec
    measured: Measured | None = None
    link_span: int | None = None
    rates: RateChanges = NO_RATE_CHANGES

    @property
    def profile(self) -> MachineProfile | None:
        """The profile of the machine, if any."""
        return profile_of(self.measured)

    @property
    def residual(self) -> LearnedResidual | None:
        """What timed programs of the machine say of its shipped prices, if anything."""
        if self.profile is not None:
            return self.profile.residual
        return None if self.calibration is None else self.calibration.residual

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of prices, if any."""
        return calibration_of(self.measured)

    @property
    def factors(self) -> Factors:
        """Factors of the calibration; 1 everywhere without one."""
        return SHIPPED if self.calibration is None else self.calibration.factors

    @cached_property
    def device(self) -> Device:
        """The catalogue's device of the (first) device group, with its rate changes."""
        return self.rates.device(device(self.cluster.groups[0].device))

    @cached_property
    def listed(self) -> Machine:
        """The machine without rate changes, the reference of measurements."""
        return self if self.rates == NO_RATE_CHANGES else replace(self, rates=NO_RATE_CHANGES)

    @cached_property
    def node(self) -> Node | None:
        """The catalogue's node of the (first) device group, or else its device's usual one."""
        group = self.cluster.groups[0]
        return nodes().get(group.node) or usual_node(group.device)

    @property
    def devices_per_host_link(self) -> int:
        """Devices in use that share one link to the host; 1 on nodes that nobody knows."""
        if self.node is None:
            return 1
        return min(self.node.devices_per_host_link, self.cluster.groups[0].devices_per_node)

    @property
    def fastest_device(self) -> Device:
        """Changed or listed device with more FLOP/s: no kernel beats its peak."""
        return self.listed.device if self.rates.flops_factor < 1 else self.device

    @cached_property
    def levels(self) -> tuple[LinkRates, ...]:
        """Rates of each link level within the span."""
        levels = self.cluster.levels[: self.link_span]
        return tuple(self.rates.link(link_rates(self.cluster, level)) for level in levels)

    @property
    def is_cpu(self) -> bool:
        """True if devices are cores: the host runs kernels, nothing overlaps."""
        return self.device.name == CPU

    def link_factor(self, level: LinkRates) -> float:
        """Calibration factor of a level's links, inside or beyond a node."""
        return self.factors.inner_links if self.in_node(level) else self.factors.outer_links

    def in_node(self, level: LinkRates) -> bool:
        """True for a level within one node, even if cut into blocks."""
        fits = level.group_size <= self.cluster.groups[0].devices_per_node
        return fits and level.level in NODE_LEVELS

    def prices_like(self, other: Machine) -> bool:
        """True if work within the spans costs the same on both, whatever their numbers of nodes."""
        one, two = (replace(m.cluster.groups[0], nodes=1) for m in (self, other))
        return (
            one == two
            and len(self.cluster.groups) == len(other.cluster.groups) == 1
            and self.measured == other.measured
            and self.rates == other.rates
            and self.levels[:-1] == other.levels[:-1]
            and replace(self.levels[-1], group_size=1) == replace(other.levels[-1], group_size=1)
        )

    def level_between(self, first: int, last: int) -> LinkRates:
        """Rates of the innermost level joining both device numbers."""
        position = self.cluster.levels.index(self.cluster.level_between(first, last))
        return self.levels[min(position, len(self.levels) - 1)]

    def link_span_of(self, width: int, used: int) -> int:
        """Levels crossed by the groups of stages of ``width`` devices.

        Nested stages span the same wherever they lie; others may straddle every edge among a plan's
        ``used`` devices, never idle ones.
        """
        sizes = [level.group_size for level in self.levels]
        nests = all(size % width == 0 or width % size == 0 for size in sizes)
        span = width if nests else used
        inner = sum(size < span for size in sizes[:-1])
        return inner + 1
