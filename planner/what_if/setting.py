"""Settings: model, cluster, workload, software and rates of a priced plan.

A change never touches a plan. It makes another setting: changed nouns where possible (cluster,
workload, words of the stack), else factors on listed rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...costmodel.pricing.machine import Machine
from ...costmodel.pricing.rate_changes import NO_RATE_CHANGES, RateChanges
from ...datasets.clusters.resize import Resized
from ...spec.cluster.cluster_spec import ClusterSpec, LevelName, LinkLevel
from ...spec.cluster.stack_spec import StackSpec
from ...spec.inputs.what_if_keys import LINK_LEVELS
from ...spec.model.model_spec import ModelSpec
from ...spec.report.report import Assumption
from ...spec.workload.expert_load import RoutedLoad
from ...spec.workload.workload import Workload

Value = str | int | float
Given = Value | RoutedLoad
"""What a key is set to; the load of experts may be that of a routing trace."""


class Change(NamedTuple):
    """Changed key with values before and after, in SI or words."""

    path: str
    was: Value
    now: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Model, cluster, workload, software and rates.

    ``stack`` prices the plan as it is; ``words``: stack, attention and overlap asked for instead.
    ``groups`` maps the plan's device groups to their names here.
    """

    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    stack: StackSpec
    rates: RateChanges = NO_RATE_CHANGES
    words: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Assumption, ...] = ()

    @property
    def machine(self) -> Machine:
        """The cluster with this setting's rates, nothing measured."""
        return Machine(self.cluster.alone(self.cluster.groups[0].name), rates=self.rates)

    def resized(self, resized: Resized) -> Setting:
        """The setting on a cluster of another size."""
        groups = {old: resized.names[new] for old, new in self.groups.items()}
        notes = self.notes + resized.notes
        return replace(self, cluster=resized.cluster, groups=groups, notes=notes)


def group_names(cluster: ClusterSpec) -> tuple[str, ...]:
    """Names of the device groups."""
    return tuple(group.name for group in cluster.groups)


def level_names(cluster: ClusterSpec) -> tuple[str, ...]:
    """Link levels for questions, ``inter_node`` with several nodes."""
    names: set[str] = {level.level for level in _levels(cluster)}
    if any(above_node(cluster.alone(name)) for name in group_names(cluster)):
        names.add("inter_node")
    return tuple(name for name in LINK_LEVELS if name in names)


def _levels(cluster: ClusterSpec) -> list[LinkLevel]:
    levels = [level for name in group_names(cluster) for level in cluster.alone(name).levels]
    return levels + (list(cluster.levels) if len(cluster.groups) > 1 else [])


def above_node(cluster: ClusterSpec) -> LevelName | None:
    """Level above the node of a one-group cluster; None without one."""
    names = [level.level for level in cluster.levels]
    index = names.index("intra_node") + 1 if "intra_node" in names else 0
    return names[index] if index < len(names) else None
