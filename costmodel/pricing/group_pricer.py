"""Prices inside, around and between several device groups of a cluster.

A stage's kernels run on its devices, and its collectives cross the links of its device group, or,
with devices of several groups, also the levels that join them. So do collectives of all stages, at
the slowest group's pace: a node with fewer adapters per device delays the others. A message takes
one level, inside or between its ends' zones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from ...spec.cluster.cluster_spec import LevelName, LinkLevel
from ...spec.plan.plan import Plan, Stage, StageDevices
from ...spec.report.work_items import Collective
from ..symbolic.tape import WorkItem
from .joint_pricer import JointPricer
from .link_span import LinkSpan, UnalignedLinkSpan, cut_cluster, joining_levels
from .pricer import Pricer


def stage_group(stage: Stage) -> str:
    """The (first) device group of a stage."""
    return stage.devices[0].device_group


def used_groups(plan: Plan) -> list[str]:
    """Device groups of the stages, in stage order."""
    return list(
        dict.fromkeys(p.device_group for stage in plan.program.stages for p in stage.devices)
    )


def used_devices(plan: Plan, group: str | None = None) -> int:
    """Devices in use of a group (default: the first stage's), gaps included."""
    stages = plan.program.stages
    name = stage_group(stages[0]) if group is None else group
    devices = (entry for stage in stages for entry in stage.devices if entry.device_group == name)
    return max(entry.first_rank + entry.count for entry in devices)


class GroupPricer:
    """Prices of one stack on every device group of a machine.

    ``whole``: prices on the machine, which are the only group's.
    """

    def __init__(self, whole: Pricer) -> None:
        self.whole = whole
        self._by_group: dict[tuple[str, LevelName | None], Pricer] = {}
        self._unaligned: dict[tuple[str, UnalignedLinkSpan], Pricer] = {}
        self._around_group: dict[tuple[str, int, tuple[LinkLevel, ...]], Pricer] = {}

    def inside(self, group: str) -> Pricer:
        """Prices of work that stays in a group."""
        return self._group_pricer(group)

    def at(self, group: str, link_span: LinkSpan) -> Pricer:
        """Prices on a rank of a group, by its stage's link span."""
        if isinstance(link_span, int):
            return self.inside(group).with_link_span(link_span)
        pricer = self._unaligned.get((group, link_span))
        if pricer is None:
            pricer = self._unaligned[group, link_span] = self._unaligned_pricer(group, link_span)
        return pricer

    def _unaligned_pricer(self, group: str, link_span: UnalignedLinkSpan) -> Pricer:
        """Prices of an unaligned or multi-group stage, one view per group."""
        machine, sizes_by_group = (
            self.whole.machine,
            {group: link_span.sizes, **dict(link_span.others)},
        )
        joining: tuple[LinkLevel, ...] = ()
        if link_span.others:
            joining = joining_levels(machine.cluster, sizes_by_group, link_span.in_zone)
        cut = [
            cut_cluster(machine.cluster, name, sizes, joining)
            for name, sizes in sizes_by_group.items()
        ]
        views = [Pricer(replace(machine, cluster=cluster), self.whole.stack) for cluster in cut]
        return JointPricer(views, len(joining)) if joining else views[0]

    def all_ranks_collective_s(self, plan: Plan, item: Collective) -> float:
        """Seconds of a collective over all ranks of a plan."""
        groups = used_groups(plan)
        if len(groups) == 1:
            return self._across(plan, groups[0]).collective(item).time_s
        return max(self._around(plan, group).collective(item).time_s for group in groups)

    def first_to_last_stage_s(self, plan: Plan, items: tuple[WorkItem, ...]) -> float:
        """Seconds of work between ranks of the first and last stage."""
        devices = [entry for stage in (0, -1) for entry in plan.program.stages[stage].devices]
        groups = {entry.device_group for entry in devices}
        if len(groups) == 1:
            return sum(self._across(plan, groups.pop()).split(items))
        return max(sum(stage.split(items)) for stage in self._between(groups))

    def message_s(self, size_bytes: int, sender: StageDevices, receiver: StageDevices) -> float:
        """Seconds of the slowest message between the ranks of two stages' devices."""
        groups = {sender.device_group, receiver.device_group}
        if len(groups) == 1:
            first = min(sender.first_rank, receiver.first_rank)
            last = max(p.first_rank + p.count - 1 for p in (sender, receiver))
            pricer = self.inside(sender.device_group)
            return pricer.message(size_bytes, pricer.machine.level_between(first, last))
        return max(end.message(size_bytes, end.machine.levels[-1]) for end in self._between(groups))

    def _across(self, plan: Plan, group: str) -> Pricer:
        pricer, used = self.inside(group), used_devices(plan, group)
        return pricer.with_link_span(pricer.machine.link_span_of(used, used))

    def _around(self, plan: Plan, group: str) -> Pricer:
        """Prices of collectives over all groups, seen from one group's used devices.

        A node's other devices count only for their share of its adapters.
        """
        machine, device_counts = self.whole.machine, Counter[str]()
        for devices in (devices for stage in plan.program.stages for devices in stage.devices):
            device_counts[devices.device_group] += devices.count
        cluster, zone = machine.cluster, machine.cluster.group(group).zone
        in_zone = sum(n for name, n in device_counts.items() if cluster.group(name).zone == zone)
        joining = joining_levels(cluster, device_counts, in_zone)
        pricer = self._around_group.get((group, device_counts[group], joining))
        if pricer is None:
            levels = cluster.alone(group).levels
            sizes = tuple(min(level.group_size, device_counts[group]) for level in levels)
            view = cut_cluster(cluster, group, sizes, joining)
            pricer = Pricer(replace(machine, cluster=view), self.whole.stack)
            self._around_group[group, device_counts[group], joining] = pricer
        return pricer

    def _between(self, groups: Collection[str]) -> list[Pricer]:
        level = self.whole.machine.cluster.joining(groups)[-1]
        return [self._group_pricer(group, level) for group in sorted(groups)]

    def _group_pricer(self, group: str, joining: LinkLevel | None = None) -> Pricer:
        """Prices inside a group, or over a level joining it to others."""
        cluster = self.whole.machine.cluster
        if len(cluster.groups) == 1:
            return self.whole
        key = (group, None if joining is None else joining.level)
        pricer = self._by_group.get(key)
        if pricer is None:
            view = cluster.alone(group)
            view = view if joining is None else replace(view, levels=(joining,))
            machine = replace(self.whole.machine, cluster=view)
            pricer = self._by_group[key] = Pricer(machine, self.whole.stack)
        return pricer
