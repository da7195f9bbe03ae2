"""Seconds of host work, of copies over the host link, and of reads and writes of drives.

A copy of n bytes takes ``launch + d · n / (link · LINK_SHARE)``, one direction, where d devices
share the link (``devices_per_host_link``): all ranks of a layer copy at the same time. A profile's
pinned copies replace it; every rank copied at once, so sharing is in them. Beside a copy the other
way each is longer by ``both_ways_slowdown``. Devices of a node share its drives: n bytes of each
take ``devices · n / rate``, of the catalogue or of a profile's direct reads and writes, which one
process took alone. Host work over m bytes takes ``m / (NODE_BYTES_PER_S / devices of the node)``,
as all share its memory. On a core copies and host work are operations of its own memory.

Worked number: 1 GiB of gradients to the host of an A100, two behind a switch: 1.07 GB at half of
0.85 · 31.5 GB/s: 80 ms; read from 8 drives of 6.5 GB/s by 8 devices: 165 ms; the update of its 268
million weights on a node of 8, 28 bytes each: 7.5 GB at 25.6 GB/s: 294 ms.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...spec.cluster.machine_profile import CHECKPOINT_KINDS, CopyKind, MachineProfile
from ...spec.report.work_items import FROM_DRIVE, TO_DEVICE, TO_DRIVE, TO_HOST, Kernel
from ..kernel_latency.profile_table import Curve, Latency
from .machine import Machine

LINK_SHARE = 0.85
"""Of one direction of the link, reached by large copies from or to pinned memory. Assumed: PCI
Express packets carry up to 256 bytes of data beside 24 to 28 of headers, and some are flow
control. Unmeasured; ``plan profile`` measures it.
"""
DRIVE_READ_BYTES_PER_S, DRIVE_WRITE_BYTES_PER_S = 6.5e9, 3.5e9
"""Of a node that is not in the catalogue. Assumed: one data center drive of PCI Express 4.0 x4."""
NODE_BYTES_PER_S = 204.8e9
"""Of a node's host memory for a stream of reads and writes. Assumed: half of two sockets of
eight channels of DDR4-3200 (409.6 GB/s). Unmeasured.
"""
FULL_DUPLEX = 1.0
"""Slowdown of copies both ways at once, of the shorter one's seconds, without a profile. Assumed:
PCI Express has lanes of its own for each direction. Unmeasured; ``plan profile`` measures it.
"""
KINDS: Mapping[str, CopyKind] = {TO_HOST: "device_to_host", TO_DEVICE: "host_to_device"}

DRIVE_KINDS: Mapping[str, CopyKind] = {FROM_DRIVE: "nvme_read", TO_DRIVE: "nvme_write"}
"""Rows through the page cache (``_cached``) are no drive's, and not used."""


def copy_curves(profile: MachineProfile | None) -> dict[str, Curve]:
    """Measured seconds of pinned copies over bytes, by kernel name."""
    curves = {op: _curve(profile, kind, pinned=True) for op, kind in KINDS.items()}
    return {op: curve for op, curve in curves.items() if curve is not None}


def drive_curves(profile: MachineProfile | None) -> dict[str, Curve]:
    """Measured seconds of direct reads and writes of drives over bytes, by kernel name."""
    curves = {op: _curve(profile, kind) for op, kind in DRIVE_KINDS.items()}
    return {op: curve for op, curve in curves.items() if curve is not None}


def checkpoint_curves(profile: MachineProfile | None) -> dict[str, Curve]:
    """Measured seconds of a checkpoint's copies, digests, writes and reads over bytes, by kind."""
    curves = {kind: _curve(profile, kind) for kind in CHECKPOINT_KINDS}
    return {kind: curve for kind, curve in curves.items() if curve is not None}


def _curve(
    profile: MachineProfile | None, kind: CopyKind, pinned: bool = False, both_ways: bool = False
) -> Curve | None:
    rows = () if profile is None else profile.copies
    wanted = kind, pinned, both_ways
    points = [
        (row.payload_bytes, row.time_s)
        for row in rows
        if (row.kind, row.pinned, row.both_ways) == wanted
    ]
    return Curve(points) if points else None


def both_ways_slowdown(profile: MachineProfile | None) -> float:
    """Factor f of copies both ways at once: each is longer by (f - 1) times the shorter one.

    From the largest size that a profile has both ways, where equal bytes went each way: 1 where
    they took as long as the slower one alone, 2 where they took turns.
    """
    down, up = (_curve(profile, kind, pinned=True) for kind in KINDS.values())
    both = [_curve(profile, kind, pinned=True, both_ways=True) for kind in KINDS.values()]
    joint = [curve for curve in both if curve is not None]
    if down is None or up is None or not joint:
        return FULL_DUPLEX
    size = max(curve.sizes[-1] for curve in joint)
    alone = sorted((down.at(size), up.at(size)))
    both_s = max(curve.at(size) for curve in joint)
    return min(2.0, max(1.0, 1.0 + (both_s - alone[1]) / alone[0]))


def drive_price(kernel: Kernel, machine: Machine, drives: Mapping[str, Curve]) -> Latency:
    """Seconds of a read or write of drives, while all devices of the node do the same.

    ``kernel``: as of a copy, each byte read on one side and written on the other; ``drives``:
    measured curves of one process.
    """
    node_bytes = kernel.traffic_bytes / 2 * machine.cluster.groups[0].devices_per_node
    if kernel.op in drives:
        return Latency(drives[kernel.op].at(node_bytes), "measured")
    node, reads = machine.node, kernel.op == FROM_DRIVE
    if node is None:
        rate = DRIVE_READ_BYTES_PER_S if reads else DRIVE_WRITE_BYTES_PER_S
    else:
        rate = node.drive_read_bytes_per_s if reads else node.drive_write_bytes_per_s
    return Latency(node_bytes / rate, "analytic")


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
        rate = device.host_link_bytes_per_s * LINK_SHARE / machine.devices_per_host_link
        return Latency(device.kernel_launch_s + moved_bytes / rate, "analytic")
    rate = NODE_BYTES_PER_S / machine.cluster.groups[0].devices_per_node
    return Latency(kernel.traffic_bytes / rate, "analytic")
