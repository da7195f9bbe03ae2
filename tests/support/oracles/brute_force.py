"""An independent brute force: every legal plan of a small space, simulated, the best one kept.

It knows nothing of the planner but which techniques a space has. It reads the rules of legality
from ``spec``, times plans with ``Simulator.run`` and judges memory with ``MemoryRule``; loops,
geometry and the meaning of a restriction are written here a second time, on purpose.

A space is every plan over a model, a cluster and a workload with: any number of the devices in
use; stages of one width; every schedule with every number of virtual stages; every divisor of
the batch as the number of micro-batches; every way to cut the layers into chunks; and for every
layer any tensor-parallel and context-parallel degree, sequence parallelism, sharding level (zero0
to zero3, every hsdp degree between) and recomputation, and for experts any expert-parallel degree.
Where a space is nested, parameters, a second copy, gradients and optimizer may each be over the
ranks of a link level's group.
Restrictions keep an axis to some values, everywhere or on a range of layers. Some axes are whole
only where a restriction speaks of them: otherwise a ring or Ulysses leaves each rank at least 4096
tokens, a replica's micro-batch has at most 2^17 tokens unless it is one sample, and experts are
split like the other weights, where every rank holds all of them, or not at all. A technique is off
unless a restriction speaks of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.planner.technique import KnownTechniques
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.model_spec import BlockLayer, Layer, ModelSpec, Moe
from shardwright.spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from shardwright.spec.program_values import program_layer_violation, program_pipeline_violation
from shardwright.spec.rules.plan_rules import (
    layer_violation,
    schedule_violation,
    stack_violation,
    tied_embedding_violation,
)
from shardwright.spec.schedules.stage_order import ALL_KINDS, ScheduleKind
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.technique import OFF, TechniqueValue
from shardwright.spec.technique_values import (
    technique_stack_violation,
    technique_violation,
    value_of_word,
    with_value,
)
from shardwright.spec.workload.workload import Workload

RECOMPUTES = ("none", "selective", "full")
SEQUENCE_PARALLELS = ("none", "megatron", "ulysses")
LEAST_TOKENS, LEAST_ADAPTED = 4096, 1024
MOST_TOKENS = 2**17
Value = int | str


@dataclass(frozen=True, kw_only=True)
class Restriction:
    """An axis keeps to ``allowed``; ``layers`` (first, last) limits it to a range of layers.

    ``tp``, ``cp`` and ``shard`` speak of every layer, ``recompute`` of blocks, ``ep`` and ``etp``
    of layers with experts, ``sp`` of layers with tp > 1, ``dp`` of the first layer and of blocks,
    ``micro_batch`` of the first layer. A sharding level names degrees: over one rank every level
    is the same.
    """

    axis: str
    allowed: tuple[Value, ...]
    layers: tuple[int, int] | None = None

    def covers(self, layer: int) -> bool:
        return self.layers is None or self.layers[0] <= layer <= self.layers[1]


@dataclass(frozen=True, kw_only=True)
class Space:
    """What is searched, and within which restrictions.

    ``tried``: techniques whose words the planner is not given: it finds its own values.
    """

    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    stack: StackSpec
    profile: MachineProfile | None = None
    restrictions: tuple[Restriction, ...] = ()
    techniques: KnownTechniques = SHIPPED
    program: tuple[tuple[str, Any], ...] = ()
    nested: bool = False
    tried: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[int, ...]:
        """Devices in a group of each link level, where degrees may nest."""
        return tuple(x.group_size for x in self.cluster.levels) if self.nested else ()

    def with_memory(self, hbm_bytes: int) -> Space:
        """The same space on devices with another capacity."""
        groups = tuple(
            replace(g, memory=replace(g.memory, hbm_bytes=hbm_bytes)) for g in self.cluster.groups
        )
        return replace(self, cluster=replace(self.cluster, groups=groups))

    def allowed(self, axis: str, value: Value, layer: int | None = None) -> bool:
        return all(
            value in r.allowed
            for r in self.restrictions
            if r.axis == axis and (layer is None or r.covers(layer))
        )


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """How devices and batch are laid out, without layers."""

    stages: int
    width: int
    kind: ScheduleKind
    chunks: int
    microbatches: int


@dataclass(slots=True)
class Timed:
    """One simulated plan; ``uniform``: one strategy for all blocks, evenly cut.

    ``reserved_bytes`` of its fullest device, ``host_bytes`` a device of its fullest host.
    """

    step_time_s: float
    reserved_bytes: int
    uniform: bool
    devices: int = 1
    host_bytes: int = 0


def needed_bytes(simulation: Simulation, tier: str) -> int:
    """Bytes of a tier on the fullest device of a plan; 0 if it uses none."""
    return max((row.reserved_bytes for row in simulation.memory if row.tier == tier), default=0)


@dataclass(slots=True)
class Answer:
    """What the brute force saw of a space, at any memory."""

    plans: list[Timed] = field(default_factory=list)
    shapes: int = 0

    def best_s(
        self,
        capacity_bytes: float,
        rule: MemoryRule,
        uniform: bool = False,
        host_bytes: float = math.inf,
    ) -> float:
        """The fastest step that fits devices and hosts; infinite if none does."""
        fitting = (
            p.step_time_s
            for p in self.plans
            if p.reserved_bytes * rule.margin <= capacity_bytes and (p.uniform or not uniform)
            if p.host_bytes * rule.margin <= host_bytes
        )
        return min(fitting, default=math.inf)

    def best_cost(
        self, capacity_bytes: float, rule: MemoryRule, price_per_s: Callable[[int], float]
    ) -> float:
        """The cheapest step that fits; ``price_per_s`` is that of so many devices from the first.

        Infinite if none fits.
        """
        fitting = (
            p.step_time_s * price_per_s(p.devices)
            for p in self.plans
            if p.reserved_bytes * rule.margin <= capacity_bytes
        )
        return min(fitting, default=math.inf)

    def feasible_count(self, capacity_bytes: float, rule: MemoryRule) -> int:
        return sum(p.reserved_bytes * rule.margin <= capacity_bytes for p in self.plans)


def pipelines(space: Space) -> Iterator[Pipeline]:
    """Every legal layout of devices and batch."""
    devices, layers = space.cluster.device_count, len(space.model.layers())
    batch = space.workload.global_batch
    for width in range(1, devices + 1):
        for stages in range(1, devices // width + 1):
            for kind in ALL_KINDS:
                for chunks in range(1, layers + 1):
                    for microbatches in range(1, batch + 1):
                        found = Pipeline(
                            stages=stages,
                            width=width,
                            kind=kind,
                            chunks=chunks,
                            microbatches=microbatches,
                        )
                        if batch % microbatches == 0 and _pipeline_allowed(space, found, layers):
                            yield found


def _pipeline_allowed(space: Space, p: Pipeline, layers: int) -> bool:
    named = {"pp": p.stages, "schedule": p.kind, "vpp": p.chunks}
    if not all(space.allowed(axis, value) for axis, value in named.items()):
        return False
    if p.kind not in space.stack.schedules:
        return False
    shape = p.kind, p.stages, p.chunks, p.microbatches
    values = space.techniques.values
    if program_pipeline_violation(dict(space.program), *shape, values) is not None:
        return False
    return schedule_violation(*shape, layers) is None


def layer_choices(space: Space, pipeline: Pipeline) -> list[list[LayerStrategy]]:
    """The legal strategies of every layer in a layout."""
    samples = space.workload.global_batch // pipeline.microbatches
    width = pipeline.width
    lengths = [t.seq_len for t in space.model.towers for _ in range(t.layer_count)]
    found = []
    for number, layer in enumerate(space.model.layers()):
        seq_len = lengths[number] or space.workload.seq_len
        lawful = _lawful(layer, width, samples, seq_len, space.stack, space.groups)
        wanted = [s for s in lawful if _wanted(space, number, layer, s, width, samples)]
        own = [_with_techniques(space, number, layer, s, width) for s in wanted]
        found.append([s for strategies in own for s in strategies])
    return found


def _with_techniques(
    space: Space, number: int, layer: Layer, strategy: LayerStrategy, width: int
) -> list[LayerStrategy]:
    """The strategy with every combination of words that restrictions allow; off where none do.

    A restriction on a technique speaks of the layer kinds that it is planned for.
    """
    values = space.techniques.values
    found = [strategy]
    for technique in values:
        if layer.kind not in technique.kinds.plannable:
            continue
        words = [
            word
            for word in _words(space, technique)
            if space.allowed(technique.name, word, number)
            and (word == OFF or _speaks(space, technique.name, number))
        ]
        found = [
            s if word == OFF else with_value(s, technique.name, value_of_word(technique, word, ""))
            for word in words
            for s in found
        ]
    return [
        s
        for s in found
        if technique_violation(layer, s, width, space.workload.dtype, values) is None
        and program_layer_violation(dict(space.program), layer, s, width, values) is None
        and technique_stack_violation(s, space.stack, values) is None
    ]


def _words(space: Space, technique: TechniqueValue) -> list[str]:
    """Off, the words of a technique, and what restrictions name of its families."""
    named = (r.allowed for r in space.restrictions if r.axis == technique.name)
    words = (OFF, *technique.words, *(str(word) for allowed in named for word in allowed))
    return list(dict.fromkeys(words))


def _speaks(space: Space, axis: str, number: int) -> bool:
    return any(r.axis == axis and r.covers(number) for r in space.restrictions)


@lru_cache(maxsize=1024)
def _lawful(
    layer: Layer,
    width: int,
    samples: int,
    seq_len: int,
    stack: StackSpec,
    groups: tuple[int, ...] = (),
) -> tuple[LayerStrategy, ...]:
    """What the rules for a layer and the stack allow."""
    return tuple(
        s
        for s in every_strategy(width, groups)
        if layer_violation(layer, s, width, samples, seq_len) is None
        and stack_violation(s, stack) is None
    )


def _choices_by_shape(space: Space) -> Callable[[Pipeline], list[list[LayerStrategy]]]:
    """``layer_choices``, found once for each width and micro-batch size: nothing else counts."""
    known: dict[tuple[int, int], list[list[LayerStrategy]]] = {}

    def choices(pipeline: Pipeline) -> list[list[LayerStrategy]]:
        key = (pipeline.width, pipeline.microbatches)
        if key not in known:
            known[key] = layer_choices(space, pipeline)
        return known[key]

    return choices


@cache
def every_strategy(width: int, groups: tuple[int, ...] = ()) -> tuple[LayerStrategy, ...]:
    """Every value of the built axes on a stage of ``width`` ranks, legal or not.

    ``groups``: sizes of those that states may be sharded inside.
    """
    degrees = [d for d in range(1, width + 1) if width % d == 0]
    found = []
    for tp, cp, sp in itertools.product(degrees, degrees, SEQUENCE_PARALLELS):
        if width % (tp * cp) or (sp != "none" and tp == 1):
            continue
        split = LayerStrategy(tp=tp, cp=cp, sequence_parallel=sp)  # type: ignore[arg-type]
        same = width if sp == "ulysses" else width // tp
        found += [
            replace(split, ep=ep, etp=etp, shard=sharding, recompute=recompute)  # type: ignore[arg-type]
            for ep, etp in itertools.product(degrees, degrees)
            if width % (ep * etp) == 0
            for sharding in every_sharding(same, tuple(g * same / width for g in groups))
            for recompute in RECOMPUTES
        ]
    return tuple(found)


def every_sharding(data_parallel: int, inside: tuple[float, ...] = ()) -> list[Sharding]:
    """zero0, zero1, zero2 over all ranks, and zero3 over every dividing group of them (hsdp).

    ``inside``: further degrees, of which any nest, with a second copy over fewer ranks.
    """
    n = data_parallel
    if inside:
        among = [d for d in range(1, n + 1) if n % d == 0 and (d in (1, n) or d in inside)]
        nested = [
            Sharding(parameters=p, secondary_parameters=s, gradients=g, optimizer=o)
            for p, s, g, o in itertools.product(among, repeat=4)
            if g % p == 0 and o % g == 0 and (s == 1 or (s < p and p % s == 0))
        ]
        return list(dict.fromkeys((*every_sharding(n), *nested)))
    degrees = [(1, 1, 1), (1, 1, n), (1, n, n)]
    degrees += [(d, d, d) for d in range(1, n + 1) if n % d == 0]
    unique = dict.fromkeys(degrees)
    return [Sharding(parameters=p, gradients=g, optimizer=o) for p, g, o in unique]


@cache
def shard_names(sharding: Sharding, data_parallel: int) -> frozenset[str]:
    """Every name that means these degrees."""
    p, g, o = sharding.parameters, sharding.gradients, sharding.optimizer
    n, second = data_parallel, sharding.secondary_parameters
    if second > 1:
        word = {f"hpz:{second}"} if p == g == o == n else set()
        return frozenset({f"{p}/{g}/{o}+hpz:{second}", *word})
    names = {f"{p}/{g}/{o}"}
    if p == g == o:
        names.add(f"hsdp:{p}")
    levels = {"zero0": (1, 1, 1), "zero1": (1, 1, n), "zero2": (1, n, n), "zero3": (n, n, n)}
    return frozenset(names | {name for name, degrees in levels.items() if degrees == (p, g, o)})


def _wanted(
    space: Space, number: int, layer: Layer, strategy: LayerStrategy, width: int, samples: int
) -> bool:
    dp = strategy.data_parallel(width)
    if not space.allowed("tp", strategy.tp, number):
        return False
    block = isinstance(layer, BlockLayer)
    if block and not space.allowed("recompute", strategy.recompute, number):
        return False
    if strategy.tp > 1 and not space.allowed("sp", strategy.sequence_parallel, number):
        return False
    if not space.allowed("cp", strategy.cp, number):
        return False
    if _experts(layer) and not (
        space.allowed("ep", strategy.ep, number) and space.allowed("etp", strategy.etp, number)
    ):
        return False
    lengths = [t.seq_len for t in space.model.towers for _ in range(t.layer_count)]
    seq_len = lengths[number] or space.workload.seq_len
    if not _within_rules(space, number, strategy, seq_len, samples // dp):
        return False
    names = shard_names(strategy.shard, strategy.state_ranks(width))
    for r in space.restrictions:
        if r.axis == "shard" and r.covers(number) and not names & set(map(str, r.allowed)):
            return False
    if (number == 0 or block) and not space.allowed("dp", dp):
        return False
    return number > 0 or samples % dp > 0 or space.allowed("micro_batch", samples // dp)


def _experts(layer: Layer) -> bool:
    return isinstance(layer, BlockLayer) and isinstance(layer.mlp, Moe)


def _within_rules(
    space: Space, number: int, s: LayerStrategy, seq_len: int, micro_batch: int
) -> bool:
    """The rules for axes that no restriction on the layer speaks of."""
    named = {r.axis for r in space.restrictions if r.covers(number)}
    if "micro_batch" not in named and micro_batch > 1 and micro_batch * seq_len > MOST_TOKENS:
        return False
    least = LEAST_TOKENS if space.workload.trainable == "full" else LEAST_ADAPTED
    if s.cp > 1 and "cp" not in named and seq_len // s.cp < least:
        return False
    parts = s.cp * s.tp
    if s.ulysses and "sp" not in named and seq_len // parts < least:
        return False
    return "etp" in named or has_usual_etp(s)


def has_usual_etp(s: LayerStrategy) -> bool:
    """True if an expert is split as other weights are, and only where every rank holds all."""
    return s.etp == 1 or (s.etp == s.tp and s.ep == 1)


def plan_count(space: Space, limit: int = 10**9) -> int:
    """How many plans :func:`all_plans` yields; stops counting past ``limit``."""
    layers, total = len(space.model.layers()), 0
    choices_of = _choices_by_shape(space)
    for pipeline in pipelines(space):
        boundaries = math.comb(layers - 1, pipeline.stages * pipeline.chunks - 1)
        total += boundaries * _combinations(space, choices_of(pipeline))
        if total > limit:
            break
    return total


def _combinations(space: Space, choices: list[list[LayerStrategy]]) -> int:
    """Strategies of all layers together; tied embeddings and head must agree."""
    if not space.model.tie_embeddings:
        return math.prod(len(options) for options in choices)
    tables = [x.kind in ("embedding", "head") for x in space.model.layers()]
    tied = [options for options, table in zip(choices, tables, strict=True) if table]
    alike = sum(all(a in options for options in tied) for a in tied[0])
    free = [options for options, table in zip(choices, tables, strict=True) if not table]
    return alike * math.prod(len(options) for options in free)


def all_plans(space: Space) -> Iterator[tuple[Plan, bool]]:
    """Every legal plan, and whether it is uniform."""
    layers = len(space.model.layers())
    choices_of = _choices_by_shape(space)
    for pipeline in pipelines(space):
        choices = choices_of(pipeline)
        if not all(choices):
            continue
        parts = pipeline.stages * pipeline.chunks
        for inner in itertools.combinations(range(1, layers), parts - 1):
            boundaries = (0, *inner, layers)
            for strategies in itertools.product(*choices):
                if tied_embedding_violation(space.model, strategies) is None:
                    plan = build(space, pipeline, boundaries, strategies)
                    yield plan, _uniform(boundaries, strategies)


def build(
    space: Space,
    pipeline: Pipeline,
    boundaries: tuple[int, ...],
    strategies: tuple[LayerStrategy, ...],
) -> Plan:
    """A plan document, one entry a layer."""
    p, width = pipeline.stages, pipeline.width
    group = space.cluster.groups[0].name
    places = [(tower.name, i) for tower in space.model.towers for i in range(tower.layer_count)]
    entries = [
        LayerPlan(layers=(tower, i, i), strategy=strategy)
        for (tower, i), strategy in zip(places, strategies, strict=True)
    ]
    stages = tuple(
        Stage(
            devices=(StageDevices(device_group=group, first_rank=s * width, count=width),),
            virtual_stages=tuple(
                tuple(entries[boundaries[place] : boundaries[place + 1]])
                for place in _places(pipeline, s)
            ),
        )
        for s in range(p)
    )
    samples = space.workload.global_batch // pipeline.microbatches
    schedule = Schedule(
        kind=pipeline.kind,
        micro_batch=samples // strategies[0].data_parallel(width),
        microbatches=pipeline.microbatches,
    )
    return Plan(
        models={"main": space.model},
        cluster=space.cluster,
        workloads={"main": space.workload},
        programs=(Program(stages=stages, schedule=schedule, techniques=dict(space.program)),),
    )


def _places(pipeline: Pipeline, stage: int) -> list[int]:
    """Which parts of the model a stage holds: round and round, or down and up in a V."""
    p = pipeline.stages
    if pipeline.kind in ("zbv", "dualpipe"):
        return [stage, 2 * p - 1 - stage]
    return [v * p + stage for v in range(pipeline.chunks)]


def _uniform(boundaries: tuple[int, ...], strategies: tuple[LayerStrategy, ...]) -> bool:
    """One split and sharding for all layers, one recomputation for all blocks, blocks even."""
    blocks = strategies[1:-1]
    if any(s != blocks[0] for s in blocks[1:]):
        return False
    split = {(s.tp, s.sequence_parallel, s.shard) for s in strategies}
    sizes = [b - a for a, b in itertools.pairwise(boundaries)]
    sizes[0] -= 1
    sizes[-1] -= 1
    return len(split) == 1 and len(set(sizes)) == 1


def simulator_of(space: Space) -> Simulator:
    """The simulation entry point for plans of a space."""
    prices, program = space.techniques.prices, dict(space.program)
    lowering = Lowering(space.model, space.workload, space.stack, prices, program)
    return Simulator(lowering, Pricer(Machine(space.cluster, space.profile), lowering.stack))


def solve(space: Space, check_every: int = 1) -> Answer:
    """Simulate every legal plan.

    Args:
        space: what to enumerate.
        check_every: every how many plans ``Plan.check`` confirms legality.
    """
    simulator, answer = simulator_of(space), Answer()
    for number, (plan, uniform) in enumerate(all_plans(space)):
        if number % check_every == 0 and (violations := plan.check(space.techniques.values)):
            raise AssertionError(f"the oracle made an illegal plan: {violations[0]}")
        simulation = simulator.run(plan)
        assert simulation is not None
        reserved, host = (needed_bytes(simulation, tier) for tier in ("hbm", "host"))
        used = sum(part.count for stage in plan.program.stages for part in stage.devices)
        answer.plans.append(Timed(simulation.step_time_s, reserved, uniform, used, host))
    answer.shapes = len(list(pipelines(space)))
    return answer
