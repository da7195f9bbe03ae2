"""An independent brute force over several device groups: every legal plan, simulated.

It knows nothing of the planner, as :mod:`oracles.brute_force`, whose meaning of restrictions it
takes over. A
space is every plan over two or more device groups with: any number of each group's devices, from
the first on; either each group, in any order, with consecutive stages of one width of its own, or
stages that each hold so many devices of every group, those of a zone side by side, which take any
whole samples of a micro-batch; every schedule, number of micro-batches and cut; any strategy of
each layer.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from generators.random_spaces import (
    DRAWN_DEVICES,
    PLENTY_BYTES,
    random_model,
    random_restrictions,
    unlimited_stack,
)
from oracles.brute_force import (
    MOST_TOKENS,
    Pipeline,
    Restriction,
    Space,
    _lawful,
    _pipeline_allowed,
    _places,
    _wanted,
    every_strategy,
    simulator_of,
)

from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.datasets.catalogue.device import device
from shardwright.spec.choices import OVERLAPS
from shardwright.spec.cluster.cluster_spec import (
    ClusterSpec,
    DeviceGroup,
    LinkLevel,
    MemoryTiers,
)
from shardwright.spec.model.model_spec import Layer
from shardwright.spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from shardwright.spec.rules.plan_rules import stack_violation
from shardwright.spec.rules.shared_stage_rules import shared_stage_violation
from shardwright.spec.schedules.stage_order import ALL_KINDS
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.workload import DtypeRecord, Workload

Held = tuple[StageDevices, ...]
Clusters = Callable[[random.Random], ClusterSpec]
"""Draws a cluster."""


def arrangements(space: Space) -> Iterator[tuple[Held, ...]]:
    """Devices of every stage; shares of shared stages are not given out yet."""
    zones, layers = space.cluster.zones, len(space.model.layers())
    groups = sorted(space.cluster.groups, key=lambda group: zones.index(group.zone))
    for chosen in range(2, len(groups) + 1):
        for order in itertools.permutations(groups, chosen):
            blocks = [list(_own_stages(group)) for group in order]
            for each in itertools.product(*blocks):
                stages = tuple((part,) for block in each for part in block)
                if len(stages) <= layers:
                    yield stages
        for some in itertools.combinations(groups, chosen):
            wide = [range(1, group.device_count + 1) for group in some]
            for widths in itertools.product(*wide):
                most = min(g.device_count // w for g, w in zip(some, widths, strict=True))
                for stages_ in range(1, min(most, layers) + 1):
                    yield tuple(
                        tuple(
                            StageDevices(device_group=g.name, first_rank=s * w, count=w)
                            for g, w in zip(some, widths, strict=True)
                        )
                        for s in range(stages_)
                    )


def _own_stages(group: DeviceGroup) -> Iterator[tuple[StageDevices, ...]]:
    for width in range(1, group.device_count + 1):
        for stages in range(1, group.device_count // width + 1):
            yield tuple(
                StageDevices(device_group=group.name, first_rank=s * width, count=width)
                for s in range(stages)
            )


def _with_shares(held: tuple[Held, ...], samples: int) -> Iterator[tuple[Held, ...]]:
    parts = len(held[0])
    if parts == 1:
        yield held
        return
    for taken in itertools.product(range(1, samples), repeat=parts):
        if sum(taken) == samples:
            yield tuple(
                tuple(
                    replace(part, batch_share=n / samples)
                    for part, n in zip(stage, taken, strict=True)
                )
                for stage in held
            )


def _choices(
    space: Space, held: Held, samples: int, number: int, layer: Layer
) -> list[LayerStrategy]:
    """The legal and wanted strategies of a layer on a stage with these devices."""
    seq_len = space.workload.seq_len
    width = sum(part.count for part in held)
    if len(held) == 1:
        lawful = _lawful(layer, width, samples, seq_len, space.stack)
        return [s for s in lawful if _wanted(space, number, layer, s, width, samples)]
    stage = Stage(devices=held, virtual_stages=())
    every = every_strategy(width)
    return [s for s in every if suits_shared(space, stage, samples, number, layer, s)]


def suits_shared(
    space: Space, stage: Stage, samples: int, number: int, layer: Layer, s: LayerStrategy
) -> bool:
    """Whether a strategy of a layer is legal and wanted on a stage of several device groups."""
    seq_len = space.workload.seq_len
    if shared_stage_violation(layer, s, stage, samples, seq_len) is not None:
        return False
    if stack_violation(s, space.stack) is not None:
        return False
    each = [samples_of(part, samples) * s.width // part.count for part in stage.devices]
    free = not any(r.axis == "micro_batch" for r in space.restrictions)
    if free and max(each) > 1 and max(each) * seq_len > MOST_TOKENS:
        return False
    if number == 0 and samples % s.data_parallel(stage.device_count):
        return False
    return _wanted(space, number, layer, s, stage.device_count, samples)


def samples_of(part: StageDevices, samples: int) -> int:
    """How many of a micro-batch's samples the devices of a group in a stage take."""
    return samples if part.batch_share is None else round(part.batch_share * samples)


def all_plans(space: Space) -> Iterator[Plan]:
    """Every legal plan."""
    layers = space.model.layers()
    batch = space.workload.global_batch
    known: dict[tuple[object, ...], list[LayerStrategy]] = {}
    for bare, count in itertools.product(arrangements(space), range(1, batch + 1)):
        if batch % count:
            continue
        samples = batch // count
        for held, kind, chunks in itertools.product(
            _with_shares(bare, samples), ALL_KINDS, range(1, len(layers) + 1)
        ):
            pipeline = Pipeline(
                stages=len(held), width=0, kind=kind, chunks=chunks, microbatches=count
            )
            if not _pipeline_allowed(space, pipeline, len(layers)):
                continue
            if len(held) == 1 and kind not in ("1f1b", "gpipe"):
                continue
            for inner in itertools.combinations(range(1, len(layers)), len(held) * chunks - 1):
                boundaries = (0, *inner, len(layers))
                stage_of = {
                    layer: s
                    for s in range(len(held))
                    for place in _places(pipeline, s)
                    for layer in range(boundaries[place], boundaries[place + 1])
                }
                options = []
                for number, layer in enumerate(layers):
                    own = held[stage_of[number]]
                    key = (number, tuple((p.count, p.batch_share) for p in own), samples)
                    if key not in known:
                        known[key] = _choices(space, own, samples, number, layer)
                    options.append(known[key])
                for strategies in itertools.product(*options):
                    plan = _build(space, pipeline, held, boundaries, strategies, samples)
                    if not plan.check():
                        yield plan


def _build(
    space: Space,
    pipeline: Pipeline,
    held: tuple[Held, ...],
    boundaries: tuple[int, ...],
    strategies: tuple[LayerStrategy, ...],
    samples: int,
) -> Plan:
    entries = [
        LayerPlan(layers=(space.model.towers[0].name, i, i), strategy=strategy)
        for i, strategy in enumerate(strategies)
    ]
    stages = tuple(
        Stage(
            devices=devices_,
            virtual_stages=tuple(
                tuple(entries[boundaries[place] : boundaries[place + 1]])
                for place in _places(pipeline, s)
            ),
        )
        for s, devices_ in enumerate(held)
    )
    schedule = Schedule(
        kind=pipeline.kind,
        micro_batch=samples // strategies[0].data_parallel(stages[0].device_count),
        microbatches=pipeline.microbatches,
    )
    return Plan(
        models={"main": space.model},
        cluster=space.cluster,
        workloads={"main": space.workload},
        programs=(Program(stages=stages, schedule=schedule),),
    )


@dataclass(slots=True)
class MixedTimed:
    """One simulated plan: seconds, and the most bytes that each device group needs."""

    step_time_s: float
    needs: dict[str, float]
    unequal: bool


def solve_mixed(space: Space, rule: MemoryRule) -> list[MixedTimed]:
    """Simulate every legal plan."""
    simulator, found = simulator_of(space), []
    for plan in all_plans(space):
        simulation = simulator.run(plan)
        assert simulation is not None
        needs: dict[str, float] = {}
        for row in simulation.memory:
            own = row.reserved_bytes * rule.margin
            needs[row.device_group] = max(needs.get(row.device_group, 0.0), own)
        stages = plan.program.stages
        widths = {stage.device_count for stage in stages}
        uneven = any(p.batch_share not in (None, 0.5) for stage in stages for p in stage.devices)
        found.append(MixedTimed(simulation.step_time_s, needs, len(widths) > 1 or uneven))
    return found


def best_within(plans: list[MixedTimed], capacity: dict[str, int]) -> float:
    """The fastest step that fits the capacities; infinite if none does."""
    fitting = (
        p.step_time_s for p in plans if all(need <= capacity[g] for g, need in p.needs.items())
    )
    return min(fitting, default=math.inf)


def capped_space(space: Space, capacity: dict[str, int]) -> Space:
    """The space with these bytes on the devices of each group."""
    groups = tuple(
        replace(g, memory=replace(g.memory, hbm_bytes=capacity[g.name]))
        for g in space.cluster.groups
    )
    return replace(space, cluster=replace(space.cluster, groups=groups))


def random_mixed_cluster(
    source: random.Random, counts: Sequence[int] = (1, 2, 2, 3)
) -> ClusterSpec:
    """Two groups of one to three devices of two kinds, and typed links."""
    names = list(DRAWN_DEVICES)
    chosen = source.sample(names, 2)
    groups = []
    for name, kind in zip(("fast", "slow"), chosen, strict=True):
        count = source.choice(counts)
        inner = LinkLevel(
            level="intra_node",
            group_size=count,
            fabric=source.choice(["NVLink3", "NVLink4", "PCIe4"]),
            bandwidth_bytes_per_s=10 ** source.uniform(9.5, 11.7),
        )
        groups.append(
            DeviceGroup(
                name=name,
                device=kind,
                node="typed",
                nodes=1,
                devices_per_node=count,
                memory=MemoryTiers(hbm_bytes=PLENTY_BYTES),
                levels=(inner,),
            )
        )
    total = sum(group.device_count for group in groups)
    join = LinkLevel(
        level="inter_rack",
        group_size=total,
        fabric=source.choice(["8x400G-IB", "1x100G-ETH"]),
        bandwidth_bytes_per_s=10 ** source.uniform(8.5, 10.7),
        oversubscription=source.choice([1.0, 2.0]),
    )
    return ClusterSpec(groups=tuple(groups), levels=(join,))


def with_one_more(cluster: ClusterSpec, number: int) -> ClusterSpec:
    """Such a cluster with a device more in the node of one of its groups."""
    groups = list(cluster.groups)
    count = groups[number].devices_per_node + 1
    levels = tuple(replace(level, group_size=count) for level in groups[number].levels)
    groups[number] = replace(groups[number], devices_per_node=count, levels=levels)
    total = sum(group.device_count for group in groups)
    (join,) = cluster.levels
    return replace(cluster, groups=tuple(groups), levels=(replace(join, group_size=total),))


def random_mixed_space(
    seed: int, least: int, most: int, clusters: Clusters = random_mixed_cluster
) -> tuple[Space, list[Plan]]:
    """A space of ``least`` to ``most`` legal plans, memory not yet capped, and its plans."""
    source = random.Random(f"mixed space {seed}")
    while True:
        cluster = clusters(source)
        kinds = [device(group.device) for group in cluster.groups]
        dtypes = [d for d in kinds[0].dtypes if d != "tf32" and all(d in k.dtypes for k in kinds)]
        flash = all(kind.flash_attention for kind in kinds) and source.random() < 0.7
        chosen = unlimited_stack(source.choice(["shardwright", "shardwright", "megatron"]))
        space = Space(
            model=random_model(source, source.choice([1, 2])),
            cluster=cluster,
            workload=Workload(
                global_batch=source.choice([2, 3, 4, 6]),
                seq_len=source.choice([256, 512, 1024]),
                dtype=DtypeRecord.from_shorthand(source.choice(dtypes)),
                gradient_clip_norm=source.choice([1.0, None]),
            ),
            stack=replace(chosen, attention="flash" if flash else "unfused").with_overlap(
                source.choice(OVERLAPS)
            ),
        )
        for _ in range(6):
            limited = replace(space, restrictions=mixed_restrictions(source, space))
            plans = list(itertools.islice(all_plans(limited), most + 1))
            if least <= len(plans) <= most:
                return limited, plans


def mixed_restrictions(source: random.Random, space: Space) -> tuple[Restriction, ...]:
    """Narrow enough for a brute force: sharding, recomputation and schedules to a few values."""
    layers, total = len(space.model.layers()), space.cluster.device_count
    found = {r.axis: r for r in random_restrictions(source, layers, total) if r.layers is None}
    kinds = source.sample(ALL_KINDS, 2)
    found["schedule"] = Restriction(axis="schedule", allowed=tuple(sorted({"1f1b", *kinds})))
    shards = source.sample(("zero0", "zero1", "zero2", "zero3"), 1)
    found["shard"] = Restriction(axis="shard", allowed=tuple(shards))
    recompute = source.sample(("none", "selective", "full"), source.choice([1, 1, 2]))
    found["recompute"] = Restriction(axis="recompute", allowed=tuple(sorted(recompute)))
    found.pop("micro_batch", None)
    found.pop("pp", None)
    found.pop("dp", None)
    return tuple(found.values())
