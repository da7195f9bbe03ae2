"""Rate changes of a question: faster or slower links, devices or host.

Each is a factor on the catalogue's figure. Analytic prices are computed from the changed figures; a
measured one (of a kernel or collective) is multiplied by the change of its formula:

    seconds = measured · formula(changed figures) / formula(listed figures)

Formulas never take longer on better figures (:mod:`roofline`, :mod:`collectives`), so neither does
any price. Worked number: a product measured at 1.0 ms whose formula says 0.9 ms, and 0.5 ms at
twice the FLOP/s (its memory traffic does not shrink): 0.56 ms.

Limits: the part of a measured kernel unknown to the formula scales with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...datasets.catalogue.device import Device
from ...datasets.catalogue.links import LinkRates
from ...spec.cluster.cluster_spec import LevelName


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRateChange:
    """Factors on one link level: bandwidth, and latency before the first byte."""

    level: LevelName
    bandwidth_factor: float = 1.0
    latency_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateChanges:
    """Factors on figures of devices, host and links; 1 for the catalogue's.

    ``flops_factor``: every number format; ``memory_bandwidth_factor``: a device's own memory;
    ``kernel_launch_factor``: least seconds of a kernel; ``host_launch_factor``: host seconds per
    kernel. ``overlap_slowdown`` is the stack's factor itself, None for no change.
    """

    flops_factor: float = 1.0
    memory_bandwidth_factor: float = 1.0
    kernel_launch_factor: float = 1.0
    host_launch_factor: float = 1.0
    overlap_slowdown: float | None = None
    links: tuple[LinkRateChange, ...] = ()

    @property
    def changes_device(self) -> bool:
        """True if any figure of the device itself differs."""
        return (self.flops_factor, self.memory_bandwidth_factor, self.kernel_launch_factor) != (
            1.0,
            1.0,
            1.0,
        )

    def device(self, listed: Device) -> Device:
        """A device of the catalogue with the changed figures."""
        if not self.changes_device:
            return listed
        rates = {dtype: rate * self.flops_factor for dtype, rate in listed.peak_flops_per_s.items()}
        return replace(
            listed,
            peak_flops_per_s=rates,
            memory_bandwidth_bytes_per_s=listed.memory_bandwidth_bytes_per_s
            * self.memory_bandwidth_factor,
            kernel_launch_s=listed.kernel_launch_s * self.kernel_launch_factor,
        )

    def link(self, listed: LinkRates) -> LinkRates:
        """A link level with the changed figures."""
        for change in self.links:
            if change.level == listed.level:
                rate = listed.bandwidth_bytes_per_s * change.bandwidth_factor
                return replace(
                    listed, bandwidth_bytes_per_s=rate, setup_factor=change.latency_factor
                )
        return listed


NO_RATE_CHANGES = RateChanges()
