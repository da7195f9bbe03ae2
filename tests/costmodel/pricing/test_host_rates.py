"""Links to the host as they are: shared by devices, slower both ways at once, drives of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.costmodel.pricing.host_rates import (
    DRIVE_READ_BYTES_PER_S,
    FULL_DUPLEX,
    LINK_SHARE,
    both_ways_slowdown,
    copy_curves,
    drive_curves,
    drive_price,
    host_price,
)
from shardwright.costmodel.pricing.machine import Machine
from shardwright.datasets.catalogue.node import node
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.machine_profile import CopyRow, MachineProfile
from shardwright.spec.report.work_items import FROM_DRIVE, TO_DEVICE, TO_DRIVE, TO_HOST, Kernel

SIZE = 2**28


def machine(text: str) -> Machine:
    return Machine(parse_cluster(text).cluster)


def transfer(op: str, size: int = SIZE) -> Kernel:
    return Kernel(op, (size,), "fp32", 0, 2 * size)


def profile(*rows: CopyRow) -> MachineProfile:
    return MachineProfile(
        fingerprint="made up", machine={}, ranks=2, measured_at="never", duration_s=1.0,
        kernels=(), copies=rows,
    )  # fmt: skip


def row(kind: str, time_s: float, size: int = SIZE, **options: bool) -> CopyRow:
    return CopyRow(kind=kind, payload_bytes=size, time_s=time_s, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "sharing"),
    [("1x8xA100-80GB", 2), ("1x2xA100-80GB", 2), ("1x1xA100-80GB", 1), ("8xH100", 1),
     ("16xV100-32GB", 2)],
)  # fmt: skip
@pytest.mark.parametrize("op", [TO_HOST, TO_DEVICE])
def test_devices_of_a_link_share_its_rate(text: str, sharing: int, op: str) -> None:
    """As many as are in use; the launch is each one's own."""
    here = machine(text)
    rate = here.device.host_link_bytes_per_s * LINK_SHARE
    want = here.device.kernel_launch_s + sharing * SIZE / rate
    assert host_price(transfer(op), here, {}).time_s == pytest.approx(want, rel=1e-12)


def test_measured_copies_have_the_sharing_in_them() -> None:
    curves = copy_curves(profile(row("device_to_host", 0.5, pinned=True)))
    price = host_price(transfer(TO_HOST), machine("8xA100-80GB"), curves)
    assert price == (0.5, "measured")


@pytest.mark.parametrize(
    ("both_s", "factor"), [(0.3, 1.0), (0.25, 1.0), (0.4, 1.5), (0.5, 2.0), (0.9, 2.0)]
)
def test_both_ways_cost_what_the_rows_say(both_s: float, factor: float) -> None:
    """Of 0.2 s down and 0.3 s up: 0.3 s at once is full duplex, 0.5 s is in turns."""
    rows = [row("device_to_host", 0.2, pinned=True), row("host_to_device", 0.3, pinned=True)]
    assert both_ways_slowdown(profile(*rows)) == FULL_DUPLEX
    kinds = ("device_to_host", "host_to_device")
    rows += [row(kind, both_s, pinned=True, both_ways=True) for kind in kinds]
    assert both_ways_slowdown(profile(*rows)) == pytest.approx(factor)
    assert copy_curves(profile(*rows))[TO_HOST].at(SIZE) == 0.2


@pytest.mark.parametrize(("op", "kind"), [(FROM_DRIVE, "read"), (TO_DRIVE, "write")])
def test_devices_of_a_node_share_its_drives(op: str, kind: str) -> None:
    """The catalogue's rate, or direct reads and writes of a profile, which one process took."""
    for count in (1, 4):
        here = machine(f"1x{count}xA100-80GB")
        rate = getattr(node("HGX-A100"), f"drive_{kind}_bytes_per_s")
        price = drive_price(transfer(op), here, {})
        assert price.time_s == pytest.approx(count * SIZE / rate, rel=1e-12)
        cached = profile(row(f"nvme_{kind}_cached", 0.1))
        assert drive_curves(cached) == {}
        curves = drive_curves(profile(row(f"nvme_{kind}", 0.1)))
        assert drive_price(transfer(op), here, curves) == (pytest.approx(0.1 * count), "measured")


@pytest.mark.parametrize(("text", "sharing"), [("1x8xA100-80GB", 2), ("8xH100", 1), ("local:2", 1)])
def test_a_node_that_the_catalogue_lacks_is_its_devices_usual_one(text: str, sharing: int) -> None:
    cluster = parse_cluster(text).cluster
    group = replace(cluster.groups[0], node="typed")
    here = Machine(replace(cluster, groups=(group,)))
    assert here.devices_per_host_link == sharing
    rate = DRIVE_READ_BYTES_PER_S if here.node is None else here.node.drive_read_bytes_per_s
    price = drive_price(transfer(FROM_DRIVE), here, {})
    assert price.time_s == pytest.approx(group.devices_per_node * SIZE / rate)
