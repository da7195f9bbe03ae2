"""Seconds of host work and of copies over the host link.

A copy of n bytes takes ``launch + n / (link · LINK_SHARE)``, one direction, unless a profile has
pinned copies. Host work over m bytes takes ``m / (NODE_BYTES_PER_S / devices of the node)``, as all
share its memory. On a core both are operations of its own memory.

Worked number: 1 GiB of gradients to the host of an A100: 1.07 GB at 0.85 · 31.5 GB/s: 40 ms; the
update of their 268 million weights on a node of 8, 28 bytes each: 7.5 GB at 25.6 GB/s: 294 ms.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...spec.cluster.machine_profile import CopyKind, MachineProfile
from ...spec.report.work_items import TO_DEVICE, TO_HOST, Kernel
from ..kernel_latency.profile_table import Curve, Latency
from .machine import Machine

LINK_SHARE = 0.85
"""Of one direction of the link, reached by large copies from or to pinned memory. Assumed: PCI
Express packets carry up to 256 bytes of data beside 24 to 28 of headers, and some are flow
control. Unmeasured; ``plan profile`` measures it.
"""
NODE_BYTES_PER_S = 204.8e9
"""Of a node's host memory for a stream of reads and writes. Assumed: half of two sockets of
eight channels of DDR4-3200 (409.6 GB/s). Unmeasured.
"""
KINDS: Mapping[str, CopyKind] = {TO_HOST: "device_to_host", TO_DEVICE: "host_to_device"}


def copy_curves(profile: MachineProfile | None) -> dict[str, Curve]:
    """Measured seconds of pinned copies over bytes, by kernel name."""
    rows = () if profile is None else profile.copies
    curves = {}
    for op, kind in KINDS.items():
        points = [
            (row.payload_bytes, row.time_s)
            for row in rows
            if row.kind == kind and row.pinned and not row.both_ways
        ]
        if points:
            curves[op] = Curve(points)
    return curves


def host_price(kernel: Kernel, machine: Machine, copies: Mapping[str, Curve]) -> Latency:
    """Seconds of host work, or of a copy over the host link.

    ``kernel``: one named as on the host; ``copies``: measured curves of the link.
    """
    device = machine.device
    if kernel.op in KINDS:
        moved_bytes = (
            kernel.traffic_bytes / 2
        )  # each byte is read on one side and written on the other
        if kernel.op in copies:
            return Latency(copies[kernel.op].at(moved_bytes), "measured")
        rate = device.host_link_bytes_per_s * LINK_SHARE
        return Latency(device.kernel_launch_s + moved_bytes / rate, "analytic")
    rate = NODE_BYTES_PER_S / machine.cluster.groups[0].devices_per_node
    return Latency(kernel.traffic_bytes / rate, "analytic")
