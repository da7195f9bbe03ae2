"""Devices of a uniform plan's stages, in device order."""

from __future__ import annotations

from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.errors import InputError
from ...spec.plan.plan import StageDevices


def place_stages(cluster: ClusterSpec, stages: int, ranks: int) -> list[StageDevices]:
    """The devices of each stage, each in one device group.

    Args:
        cluster: all stages together fill its devices.
        stages: number of stages.
        ranks: devices of a stage.

    Raises:
        InputError: a stage would span two groups.
    """
    devices: list[StageDevices] = []
    for group in cluster.groups:
        if group.device_count % ranks:
            sizes = ", ".join(f"{g.name} {g.device_count}" for g in cluster.groups)
            allowed = f"stages that lie in one device group each: devices that divide {sizes}"
            description = f"{stages} stages of {ranks} devices, one of them over two groups"
            raise InputError("--pp", description, allowed, _nearest_stages(cluster, stages))
        devices += [
            StageDevices(device_group=group.name, first_rank=first, count=ranks)
            for first in range(0, group.device_count, ranks)
        ]
    return devices


def _nearest_stages(cluster: ClusterSpec, stages: int) -> int:
    devices = cluster.device_count
    widths = [
        width
        for width in range(1, min(group.device_count for group in cluster.groups) + 1)
        if all(group.device_count % width == 0 for group in cluster.groups)
    ]
    return min(
        (devices // width for width in widths), key=lambda count: (abs(count - stages), count)
    )
