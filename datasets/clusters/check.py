"""Check a cluster from a document against the catalogue's names."""

from __future__ import annotations

from ...spec.cluster.cluster_spec import ClusterSpec, DeviceGroup
from ...spec.errors import InputError
from ...spec.rules.input_rules import cluster_problems
from ..catalogue.device import CPU, device
from ..catalogue.fabric import fabric
from ..catalogue.node import node


def check_cluster(cluster: ClusterSpec, where: str) -> None:
    """Refuse a cluster with unknown names or levels that do not nest.

    Raises:
        InputError: the first problem.
    """
    if not cluster.groups or not cluster.levels:
        raise InputError(f"{where}: groups", "none", "at least one device group and one level")
    for number, group in enumerate(cluster.groups):
        _check_names(group, f"{where}: groups.{number}", alone=len(cluster.groups) == 1)
        for level_number, level in enumerate(group.levels):
            fabric(level.fabric, where=f"{where}: groups.{number}.levels.{level_number}.fabric")
    for number, level in enumerate(cluster.levels):
        fabric(level.fabric, where=f"{where}: levels.{number}.fabric")
    for problem in cluster_problems(cluster):
        raise problem.error(where)


def _check_names(group: DeviceGroup, where: str, alone: bool) -> None:
    for key, name, full_name in (
        ("device", group.device, device(group.device, where=f"{where}.device").name),
        ("node", group.node, node(group.node, where=f"{where}.node").name),
    ):
        if name != full_name:
            raise InputError(f"{where}.{key}", name, "the catalogue's full name", full_name)
    if group.device == CPU and not alone:
        allowed = "an accelerator; cores of this machine are a cluster of their own"
        raise InputError(f"{where}.device", group.device, allowed)
