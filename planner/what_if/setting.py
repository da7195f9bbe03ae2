"""A setting: what a plan is priced and searched for; and one changed in the ways people ask about.

A change never touches a plan. It makes a setting of another one: the nouns where they say it
(cluster, workload, words of the stack), and factors on listed rates where they do not.
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
from ...spec.workload.workload import Workload

Value = str | int | float


class Change(NamedTuple):
    """One thing that differs: its key, and what it was and is, in SI or in a word."""

    path: str
    was: Value
    now: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Model, cluster, workload, software and rates.

    ``stack`` is what prices the plan as it is given; ``words`` are the stack, attention and
    overlap that a question asks for instead. ``groups`` says what the plan's device groups are
    called here.
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
        """The cluster with the rates of this setting, nothing measured of it."""
        return Machine(self.cluster.alone(self.cluster.groups[0].name), rates=self.rates)

    def resized(self, found: Resized) -> Setting:
        """The setting on a cluster of another size."""
        groups = {old: found.names[new] for old, new in self.groups.items()}
        notes = self.notes + found.notes
        return replace(self, cluster=found.cluster, groups=groups, notes=notes)


def group_names(cluster: ClusterSpec) -> tuple[str, ...]:
    """Names of the device groups."""
    return tuple(group.name for group in cluster.groups)


def level_names(cluster: ClusterSpec) -> tuple[str, ...]:
    """The link levels that a question may name, ``inter_node`` among them where there is one."""
    found = {level.level for level in _every_level(cluster)}
    if any(above_node(cluster.alone(name)) for name in group_names(cluster)):
        return tuple(n for n in LINK_LEVELS if n in found or n == "inter_node")
    return tuple(name for name in LINK_LEVELS if name in found)


def _every_level(cluster: ClusterSpec) -> list[LinkLevel]:
    inside = [level for name in group_names(cluster) for level in cluster.alone(name).levels]
    return inside + (list(cluster.levels) if len(cluster.groups) > 1 else [])


def above_node(cluster: ClusterSpec) -> LevelName | None:
    """The level just above the node of a cluster of one group; None where there is one node."""
    names = [level.level for level in cluster.levels]
    place = names.index("intra_node") + 1 if "intra_node" in names else 0
    return names[place] if place < len(names) else None
