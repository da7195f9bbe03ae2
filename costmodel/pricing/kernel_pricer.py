"""Seconds of kernels: from a profile, a device's timings, trees or roofline."""

from __future__ import annotations

from ...spec.report.work_items import FROM_DRIVE, TO_DRIVE, Kernel, Term, on_host, without_host
from ..kernel_latency.device_latency import DeviceLatency
from ..kernel_latency.profile_table import KernelTable, Latency
from ..kernel_latency.refitted import refitted_prices
from ..kernel_latency.roofline import kernel_seconds
from ..kernel_latency.stragglers import straggler_seconds
from .host_rates import copy_curves, drive_curves, drive_price, host_price
from .machine import Machine

FACTOR_OF: dict[Term, str] = {
    "matmul": "matmul",
    "attention": "attention",
    "elementwise": "elementwise",
    "optimizer": "elementwise",
}
"""The calibration's factor of each kernel's term."""


class KernelPricer:
    """Price kernels on one machine, each distinct one once.

    ``latencies`` are those of the kernels priced so far.
    """

    def __init__(self, machine: Machine, flash_generation: int) -> None:
        self.latencies: dict[Kernel, Latency] = {}
        self._machine, self._generation = machine, flash_generation
        self._table = KernelTable(machine.profile) if machine.profile is not None else None
        residual = machine.residual
        self._refitted = (
            None if residual is None else refitted_prices(residual, machine.device.name)
        )
        self._latency = DeviceLatency(machine.listed.device, flash_generation)
        self._copies = copy_curves(machine.profile)
        self._drives = drive_curves(machine.profile)

    def latency(self, kernel: Kernel) -> Latency:
        """Seconds of one kernel on the device."""
        latency = self.latencies.get(kernel)
        if latency is None:
            latency = self._host(kernel) if on_host(kernel.op) else self._device(kernel)
            self.latencies[kernel] = latency
        return latency

    def _host(self, kernel: Kernel) -> Latency:
        if kernel.op in (FROM_DRIVE, TO_DRIVE):
            return drive_price(kernel, self._machine, self._drives)
        if self._machine.is_cpu:
            return self.latency(kernel._replace(op=without_host(kernel.op)))
        return host_price(kernel, self._machine, self._copies)

    def _device(self, kernel: Kernel) -> Latency:
        measured = self._measured(kernel)
        if measured is None:
            return self._predicted(kernel)
        latency = self._at_changed_rates(kernel, measured)
        return latency._replace(time_s=latency.time_s * self._factor(kernel))

    def _measured(self, kernel: Kernel) -> Latency | None:
        """By timed programs: a program's own time, between their sizes, or learned from all."""
        table, refitted = self._table, self._refitted
        between = None if table is None else table.price(kernel)
        if refitted is None or not refitted.covers(kernel):
            return between
        if table is None:
            return refitted.latency(kernel)
        is_known = between is not None and between.source == "measured"
        if table.has(kernel) or (is_known and not refitted.leads(kernel)):
            return between
        latency = refitted.latency(kernel)
        return latency._replace(time_s=latency.time_s * table.slowdown)

    def _predicted(self, kernel: Kernel) -> Latency:
        machine = self._machine
        latency = self._latency.price(kernel)
        if latency is None:
            latency = Latency(kernel_seconds(kernel, machine.device, self._generation), "analytic")
        else:
            latency = self._at_changed_rates(kernel, latency)
        seconds = latency.time_s if machine.is_cpu else straggler_seconds(latency.time_s, kernel)
        return Latency(seconds * self._factor(kernel), latency.source)

    def _factor(self, kernel: Kernel) -> float:
        factor: float = getattr(self._machine.factors, FACTOR_OF[kernel.term])
        return factor

    def _at_changed_rates(self, kernel: Kernel, listed: Latency) -> Latency:
        if not self._machine.rates.changes_device:
            return listed
        changed_s, listed_s = (
            kernel_seconds(kernel, machine.device, self._generation)
            for machine in (self._machine, self._machine.listed)
        )
        if changed_s == listed_s:
            return listed
        return Latency(listed.time_s * (changed_s / listed_s), "learned")
