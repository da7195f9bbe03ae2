"""Prices on a cluster of several device groups: inside each group, around it, and between groups.

A stage's kernels run on its own devices, and its collectives cross the links of its device group;
where it holds devices of several groups, what all of them take part in crosses the levels that
join the groups too. What all stages take part in also crosses those levels, at the pace of the
slowest group: a node with fewer adapters a device holds the others up. A message takes one level,
that inside the zone of its ends, or between their zones.
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
    """The (first) device group that a stage lies in."""
    return stage.devices[0].device_group


def used_groups(plan: Plan) -> list[str]:
    """The device groups that stages lie in, in the order of the stages."""
    return list(
        dict.fromkeys(p.device_group for stage in plan.program.stages for p in stage.devices)
    )


def used_devices(plan: Plan, group: str | None = None) -> int:
    """Devices from a group's first to the last that a stage holds (the first stage's group)."""
    stages = plan.program.stages
    wanted = stage_group(stages[0]) if group is None else group
    parts = (part for stage in stages for part in stage.devices if part.device_group == wanted)
    return max(part.first_rank + part.count for part in parts)


class GroupPricer:
    """Prices of one stack on every device group of a machine; one group is the machine itself.

    Args:
        whole: prices on the machine.
    """

    def __init__(self, whole: Pricer) -> None:
        self.whole = whole
        self._found: dict[tuple[str, LevelName | None], Pricer] = {}
        self._unaligned: dict[tuple[str, UnalignedLinkSpan], Pricer] = {}
        self._around_group: dict[tuple[str, int, tuple[LinkLevel, ...]], Pricer] = {}

    def inside(self, group: str) -> Pricer:
        """Prices of work that stays in a group."""
        return self._of(group)

    def at(self, group: str, link_span: LinkSpan) -> Pricer:
        """Prices on a rank of a group whose stage reaches so far."""
        if isinstance(link_span, int):
            return self.inside(group).with_link_span(link_span)
        found = self._unaligned.get((group, link_span))
        if found is None:
            found = self._unaligned[group, link_span] = self._at(group, link_span)
        return found

    def _at(self, group: str, spread: UnalignedLinkSpan) -> Pricer:
        """Prices of a stage that lies askew, or in several groups, each with its view of links."""
        machine, parts = self.whole.machine, {group: spread.sizes, **dict(spread.others)}
        joined: tuple[LinkLevel, ...] = ()
        if spread.others:
            joined = joining_levels(machine.cluster, parts, spread.in_zone)
        cut = [cut_cluster(machine.cluster, name, sizes, joined) for name, sizes in parts.items()]
        views = [Pricer(replace(machine, cluster=cluster), self.whole.stack) for cluster in cut]
        return JointPricer(views, len(joined)) if joined else views[0]

    def all_ranks_collective_s(self, plan: Plan, item: Collective) -> float:
        """Seconds of a collective over all ranks of a plan."""
        groups = used_groups(plan)
        if len(groups) == 1:
            return self._across(plan, groups[0]).collective(item).time_s
        return max(self._around(plan, group).collective(item).time_s for group in groups)

    def first_to_last_stage_s(self, plan: Plan, items: tuple[WorkItem, ...]) -> float:
        """Seconds of work between a rank of the first stage and one of the last."""
        parts = [part for end in (0, -1) for part in plan.program.stages[end].devices]
        ends = {part.device_group for part in parts}
        if len(ends) == 1:
            return sum(self._across(plan, ends.pop()).split(items))
        return max(sum(end.split(items)) for end in self._between(ends))

    def message_s(self, size_bytes: int, place: StageDevices, peer: StageDevices) -> float:
        """Seconds of the slowest message between the ranks of two parts of stages."""
        groups = {place.device_group, peer.device_group}
        if len(groups) == 1:
            first = min(place.first_rank, peer.first_rank)
            last = max(p.first_rank + p.count - 1 for p in (place, peer))
            inside = self.inside(place.device_group)
            return inside.message(size_bytes, inside.machine.level_between(first, last))
        return max(end.message(size_bytes, end.machine.levels[-1]) for end in self._between(groups))

    def _across(self, plan: Plan, group: str) -> Pricer:
        """Prices of work over all devices of a group that a plan uses."""
        pricer, used = self.inside(group), used_devices(plan, group)
        return pricer.with_link_span(pricer.machine.link_span_of(used, used))

    def _around(self, plan: Plan, group: str) -> Pricer:
        """Prices of what crosses all groups, as one sees it that is as large as its held devices.

        How many devices a node has beyond those does not count, but for their share of its
        adapters.
        """
        machine, held = self.whole.machine, Counter[str]()
        for part in (part for stage in plan.program.stages for part in stage.devices):
            held[part.device_group] += part.count
        cluster, zone = machine.cluster, machine.cluster.group(group).zone
        in_zone = sum(n for name, n in held.items() if cluster.group(name).zone == zone)
        joined = joining_levels(cluster, held, in_zone)
        found = self._around_group.get((group, held[group], joined))
        if found is None:
            levels = cluster.alone(group).levels
            sizes = tuple(min(level.group_size, held[group]) for level in levels)
            seen = cut_cluster(cluster, group, sizes, joined)
            found = Pricer(replace(machine, cluster=seen), self.whole.stack)
            self._around_group[group, held[group], joined] = found
        return found

    def _between(self, groups: Collection[str]) -> list[Pricer]:
        """Prices of work between devices of several groups, as each sees what joins them all."""
        level = self.whole.machine.cluster.joining(groups)[-1]
        return [self._of(group, level) for group in sorted(groups)]

    def _of(self, group: str, over: LinkLevel | None = None) -> Pricer:
        """Prices inside a group, or over a level that joins it to others."""
        cluster = self.whole.machine.cluster
        if len(cluster.groups) == 1:
            return self.whole
        key = (group, None if over is None else over.level)
        found = self._found.get(key)
        if found is None:
            view = cluster.alone(group)
            view = view if over is None else replace(view, levels=(over,))
            machine = replace(self.whole.machine, cluster=view)
            found = self._found[key] = Pricer(machine, self.whole.stack)
        return found
