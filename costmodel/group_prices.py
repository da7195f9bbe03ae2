"""Prices on a cluster of several device groups: inside each group, around it, and between groups.

A stage lies in one group, so its kernels run on that group's devices and its collectives cross
that group's links. What all stages take part in also crosses the level that joins the groups,
at the pace of the slowest group: a node with fewer adapters a device holds the others up.
"""

from __future__ import annotations

from dataclasses import replace

from ..spec.kernels import Collective
from ..spec.plan import Plan, Stage
from .prices import Pricer
from .tape import Item


def stage_group(stage: Stage) -> str:
    """The device group that a stage lies in."""
    return stage.devices[0].device_group


def used_groups(plan: Plan) -> list[str]:
    """The device groups that stages lie in, in the order of the stages."""
    return list(dict.fromkeys(stage_group(stage) for stage in plan.program.stages))


def used_devices(plan: Plan, group: str | None = None) -> int:
    """Devices from a group's first to the last that a stage holds (the first stage's group)."""
    stages = plan.program.stages
    wanted = stage_group(stages[0]) if group is None else group
    places = [stage.devices[0] for stage in stages if stage_group(stage) == wanted]
    return max(place.first_rank + place.count for place in places)


class GroupPrices:
    """Prices of one stack on every device group of a machine; one group is the machine itself.

    Args:
        whole: prices on the machine.
    """

    def __init__(self, whole: Pricer) -> None:
        self.whole = whole
        self._found: dict[tuple[str, str], Pricer] = {}

    def inside(self, group: str) -> Pricer:
        """Prices of work that stays in a group."""
        return self._of("inside", group)

    def all_ranks_s(self, plan: Plan, item: Collective) -> float:
        """Seconds of a collective over all ranks of a plan."""
        groups = used_groups(plan)
        if len(groups) == 1:
            return self._across(plan, groups[0]).collective(item).time_s
        return max(self._of("around", group).collective(item).time_s for group in groups)

    def between_ends_s(self, plan: Plan, items: tuple[Item, ...]) -> float:
        """Seconds of work between a rank of the first stage and one of the last."""
        ends = {stage_group(plan.program.stages[end]) for end in (0, -1)}
        if len(ends) == 1:
            return sum(self._across(plan, ends.pop()).split(items))
        return max(sum(self._of("between", group).split(items)) for group in sorted(ends))

    def message_s(self, size_bytes: int, stage: Stage, peer: Stage) -> float:
        """Seconds of the slowest message between the ranks of two stages."""
        groups = sorted({stage_group(stage), stage_group(peer)})
        if len(groups) == 1:
            first, last = sorted(s.devices[0].first_rank for s in (stage, peer))
            inside = self.inside(groups[0])
            level = inside.machine.level_between(first, last + stage.device_count - 1)
            return inside.message(size_bytes, level)
        ends = [self._of("between", group) for group in groups]
        return max(end.message(size_bytes, end.machine.levels[-1]) for end in ends)

    def _across(self, plan: Plan, group: str) -> Pricer:
        """Prices of work over all devices of a group that a plan uses."""
        pricer, used = self.inside(group), used_devices(plan, group)
        return pricer.reaching(pricer.machine.reach_of(used, used))

    def _of(self, scope: str, group: str) -> Pricer:
        cluster = self.whole.machine.cluster
        if len(cluster.groups) == 1:
            return self.whole
        found = self._found.get((scope, group))
        if found is None:
            view = {
                "inside": cluster.alone,
                "around": cluster.seen_from,
                "between": cluster.joined_at,
            }
            machine = replace(self.whole.machine, cluster=view[scope](group))
            found = self._found[scope, group] = Pricer(machine, self.whole.stack)
        return found
