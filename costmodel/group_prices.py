"""Prices on a cluster of several device groups: inside each group, around it, and between groups.

A stage's kernels run on its own devices, and its collectives cross the links of its device group;
where it holds devices of several groups, what all of them take part in crosses the level that
joins the groups too. What all stages take part in also crosses that level, at the pace of the
slowest group: a node with fewer adapters a device holds the others up.
"""

from __future__ import annotations

from dataclasses import replace

from ..spec.kernels import Collective
from ..spec.plan import Plan, Stage, StageDevices
from .joined_prices import JoinedPricer
from .prices import Pricer
from .reach import Reach, Spread, cut_cluster
from .tape import Item


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


class GroupPrices:
    """Prices of one stack on every device group of a machine; one group is the machine itself.

    Args:
        whole: prices on the machine.
    """

    def __init__(self, whole: Pricer) -> None:
        self.whole = whole
        self._found: dict[tuple[str, str], Pricer] = {}
        self._spread: dict[tuple[str, Spread], Pricer] = {}
        self._reaching_out: dict[tuple[str, int], Pricer] = {}

    def inside(self, group: str) -> Pricer:
        """Prices of work that stays in a group."""
        return self._of("inside", group)

    def at(self, group: str, reach: Reach) -> Pricer:
        """Prices on a rank of a group whose stage reaches so far."""
        if isinstance(reach, int):
            return self.inside(group).reaching(reach)
        found = self._spread.get((group, reach))
        if found is None:
            views = [self._view(name, reach, group) for name in self._names(group, reach)]
            found = views[0]
            if len(views) > 1:
                found = JoinedPricer(views)
            self._spread[group, reach] = found
        return found

    @staticmethod
    def _names(group: str, spread: Spread) -> list[str]:
        return [group, *(name for name, _ in spread.others)]

    def _view(self, name: str, spread: Spread, own: str) -> Pricer:
        """Prices as the ranks of one of a stage's device groups see the links."""
        sizes = spread.sizes if name == own else dict(spread.others)[name]
        cluster = cut_cluster(self.whole.machine.cluster, name, sizes, joined=bool(spread.others))
        return Pricer(replace(self.whole.machine, cluster=cluster), self.whole.stack)

    def all_ranks_s(self, plan: Plan, item: Collective) -> float:
        """Seconds of a collective over all ranks of a plan."""
        groups = used_groups(plan)
        if len(groups) == 1:
            return self._across(plan, groups[0]).collective(item).time_s
        return max(self._around(plan, group).collective(item).time_s for group in groups)

    def between_ends_s(self, plan: Plan, items: tuple[Item, ...]) -> float:
        """Seconds of work between a rank of the first stage and one of the last."""
        parts = [part for end in (0, -1) for part in plan.program.stages[end].devices]
        ends = {part.device_group for part in parts}
        if len(ends) == 1:
            return sum(self._across(plan, ends.pop()).split(items))
        return max(sum(self._of("between", group).split(items)) for group in sorted(ends))

    def message_s(self, size_bytes: int, place: StageDevices, peer: StageDevices) -> float:
        """Seconds of the slowest message between the ranks of two parts of stages."""
        groups = sorted({place.device_group, peer.device_group})
        if len(groups) == 1:
            first = min(place.first_rank, peer.first_rank)
            last = max(p.first_rank + p.count - 1 for p in (place, peer))
            inside = self.inside(groups[0])
            return inside.message(size_bytes, inside.machine.level_between(first, last))
        ends = [self._of("between", group) for group in groups]
        return max(end.message(size_bytes, end.machine.levels[-1]) for end in ends)

    def _across(self, plan: Plan, group: str) -> Pricer:
        """Prices of work over all devices of a group that a plan uses."""
        pricer, used = self.inside(group), used_devices(plan, group)
        return pricer.reaching(pricer.machine.reach_of(used, used))

    def _around(self, plan: Plan, group: str) -> Pricer:
        """Prices of what crosses all groups, as one sees it that is as large as its held devices.

        How many devices a node has beyond those does not count, but for their share of its
        adapters.
        """
        parts = (part for stage in plan.program.stages for part in stage.devices)
        held = sum(part.count for part in parts if part.device_group == group)
        found = self._reaching_out.get((group, held))
        if found is None:
            machine = self.whole.machine
            levels = machine.cluster.alone(group).levels
            sizes = tuple(min(level.group_size, held) for level in levels)
            seen = cut_cluster(machine.cluster, group, sizes, joined=True)
            found = Pricer(replace(machine, cluster=seen), self.whole.stack)
            self._reaching_out[group, held] = found
        return found

    def _of(self, scope: str, group: str) -> Pricer:
        cluster = self.whole.machine.cluster
        if len(cluster.groups) == 1:
            return self.whole
        found = self._found.get((scope, group))
        if found is None:
            view = cluster.alone if scope == "inside" else cluster.joined_at
            machine = replace(self.whole.machine, cluster=view(group))
            found = self._found[scope, group] = Pricer(machine, self.whole.stack)
        return found
