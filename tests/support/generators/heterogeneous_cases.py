"""Plans whose stages are not alike: other widths, several device groups, shares of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from generators.plan_cases import DEVICE_BYTES, PLAIN, Case

from shardwright.spec.cluster.cluster_spec import (
    ClusterSpec,
    DeviceGroup,
    LinkLevel,
    MemoryTiers,
)
from shardwright.spec.plan.plan import LayerPlan, Plan, Stage, StageDevices
from shardwright.spec.strategy import LayerStrategy

FAST, SLOW = "fast", "slow"
SHAPE = Case(name="")
Held = tuple[tuple[str, int, float | None], ...]
"""What a stage holds of each device group: its name, ranks, and share of the batch."""


def two_groups(fast: int, slow: int) -> ClusterSpec:
    """Cores of one machine as two device groups."""
    level = LinkLevel(level="intra_node", group_size=1, fabric="loopback")
    groups = tuple(
        DeviceGroup(
            name=name,
            device="cpu",
            node="local",
            nodes=1,
            devices_per_node=count,
            memory=MemoryTiers(hbm_bytes=DEVICE_BYTES),
            levels=(replace(level, group_size=count),),
        )
        for name, count in ((FAST, fast), (SLOW, slow))
        if count
    )
    if len(groups) == 1:
        return ClusterSpec(groups=(replace(groups[0], levels=()),), levels=groups[0].levels)
    joining = replace(level, level="inter_rack", group_size=fast + slow)
    return ClusterSpec(groups=groups, levels=(joining,))


def ranks(count: int, group: str = FAST) -> Held:
    """A stage of some ranks of one group."""
    return ((group, count, None),)


@dataclass(frozen=True, kw_only=True)
class MixedCase:
    """A plan in short: what each stage holds, and the strategies of its layers.

    ``strategies`` is one for all layers, or one a stage; several of a stage take turns, layer by
    layer. ``slow`` is the slow ranks' own, of layers that have one. ``legal`` false leaves out
    the check where the executor runs more than may be planned.
    """

    name: str
    held: Sequence[Held]
    strategies: LayerStrategy | Sequence[LayerStrategy | Sequence[LayerStrategy]] = PLAIN
    slow: LayerStrategy | None = None
    base: Case = SHAPE
    legal: bool = True

    @property
    def ranks(self) -> int:
        return sum(count for stage in self.held for _, count, _ in stage)

    def strategy(self, stage: int, layer: int) -> LayerStrategy:
        """The strategy of a layer; only blocks recompute."""
        given = self.strategies
        own = given if isinstance(given, LayerStrategy) else given[stage]
        found = own if isinstance(own, LayerStrategy) else own[layer % len(own)]
        ends = layer in (0, self.base.layer_count - 1)
        return replace(found, recompute="none") if ends else found

    def plan(self) -> Plan:
        """The plan, checked; its layers cut as those of ``base``."""
        stages = len(self.held)
        base = replace(self.base, name=self.name, ranks=stages, stages=stages, strategies=PLAIN)
        plan = base.plan()
        devices = list(self._devices())
        program = plan.program
        replicas = self.strategy(0, 0).data_parallel(sum(n for _, n, _ in self.held[0]))
        program = replace(
            program,
            stages=tuple(
                Stage(
                    devices=devices[s],
                    virtual_stages=tuple(
                        tuple(self._with(part, s) for part in parts)
                        for parts in stage.virtual_stages
                    ),
                )
                for s, stage in enumerate(program.stages)
            ),
            schedule=replace(program.schedule, micro_batch=self.base.micro_batch // replicas),
        )
        used = {name: sum(n for held in self.held for g, n, _ in held if g == name)
                for name in (FAST, SLOW)}  # fmt: skip
        plan = replace(plan, programs=(program,), cluster=two_groups(used[FAST], used[SLOW]))
        violations = plan.check() if self.legal else []
        assert not violations, (self.name, [str(v) for v in violations])
        return plan

    def _devices(self) -> list[tuple[StageDevices, ...]]:
        taken = dict.fromkeys((FAST, SLOW), 0)
        found = []
        for held in self.held:
            parts = []
            for group, count, share in held:
                first, taken[group] = taken[group], taken[group] + count
                parts.append(
                    StageDevices(
                        device_group=group, first_rank=first, count=count, batch_share=share
                    )
                )
            found.append(tuple(parts))
        return found

    def _with(self, part: LayerPlan, stage: int) -> LayerPlan:
        layer = part.layers[1]
        inner = 0 < layer < self.base.layer_count - 1
        own = {SLOW: self.slow} if self.slow is not None and inner else {}
        return replace(part, strategy=self.strategy(stage, layer), by_device_group=own)
