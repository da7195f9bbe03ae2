"""Decisions turned into plans, simulated once and judged against memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from ...costmodel.lowering.layer_parts import LayerWorkCache
from ...costmodel.memory.feasibility import MemoryRule
from ...costmodel.simulation.simulator import Simulation, Simulator
from ...spec.model.model_spec import ModelSpec
from ...spec.model.towers import shared_tables
from ...spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from ...spec.rules.plan_rules import tied_embedding_violation
from ...spec.strategy import LayerStrategy
from ..space.search_space import PipelineShape, Request
from ..tables.layer_costs import LayerCosts


class Decision(NamedTuple):
    """Shape, chunk boundaries (in data order) and strategy of every layer."""

    shape: PipelineShape
    boundaries: tuple[int, ...]
    strategies: tuple[LayerStrategy, ...]


@dataclass(frozen=True)
class Outcome:
    """Simulated decision, with ``excess_bytes`` of its fullest device (0 if feasible)."""

    decision: Decision
    plan: Plan
    simulation: Simulation
    excess_bytes: float

    @cached_property
    def hash_order(self) -> PlanHashOrder:
        """Sort key among outcomes otherwise equal."""
        return PlanHashOrder(self.plan)

    @cached_property
    def chunk_blocks(self) -> tuple[int, ...]:
        """Number of blocks in each chunk, in the order of data."""
        model, ends = self.plan.models["main"], self.decision.boundaries
        seen = list(accumulate((x.kind == "block" for x in model.layers()), initial=0))
        return tuple(seen[stop] - seen[start] for start, stop in pairwise(ends))

    @property
    def unevenness(self) -> int:
        """Sum of the squared blocks of chunks, least for the most even cut of a shape."""
        return sum(blocks * blocks for blocks in self.chunk_blocks)

    @property
    def step_time_s(self) -> float:
        """Simulated seconds of a step."""
        return self.simulation.step_time_s

    @property
    def feasible(self) -> bool:
        """True if the plan fits its memory."""
        return self.excess_bytes <= 0

    @property
    def distinct_strategies(self) -> int:
        """Number of distinct layer strategies: the measure of simplicity."""
        return len(set(self.decision.strategies))


def build_plan(request: Request, decision: Decision) -> Plan:
    """Plan document of a decision; devices in order, the rest idle."""
    shape = decision.shape
    runs = [
        _layer_plans(request.model, decision.strategies, start, stop)
        for start, stop in zip(decision.boundaries, decision.boundaries[1:], strict=False)
    ]
    stages = tuple(
        Stage(
            devices=_stage_devices(request, shape, s),
            virtual_stages=tuple(runs[shape.position(s, v)] for v in range(shape.chunks)),
        )
        for s in range(shape.stages)
    )
    samples = request.workload.global_batch // shape.microbatches
    schedule = Schedule(
        kind=shape.kind,
        micro_batch=samples // decision.strategies[0].data_parallel(stages[0].device_count),
        microbatches=shape.microbatches,
    )
    return Plan(
        models={"main": request.model},
        cluster=request.cluster,
        workloads={"main": request.workload},
        programs=(Program(stages=stages, schedule=schedule, techniques=request.program),),
    )


def _stage_devices(request: Request, shape: PipelineShape, stage: int) -> tuple[StageDevices, ...]:
    if not shape.places:
        group, ranks = request.cluster.groups[0].name, shape.ranks
        return (StageDevices(device_group=group, first_rank=stage * ranks, count=ranks),)
    placement = shape.places[stage]
    samples = sum(part.samples for part in placement)
    return tuple(
        StageDevices(
            device_group=part.group,
            first_rank=part.first,
            count=part.devices,
            batch_share=part.samples / samples if len(placement) > 1 else None,
        )
        for part in placement
    )


def _layer_plans(
    model: ModelSpec, strategies: tuple[LayerStrategy, ...], start: int, stop: int
) -> tuple[LayerPlan, ...]:
    """Runs of equal strategies among layers start..stop-1, split at tower ends."""
    positions = [(t.name, i) for t in model.towers for i in range(t.layer_count)]
    plans: list[LayerPlan] = []
    first = start
    for index in range(start, stop):
        last_of_run = (
            index + 1 == stop
            or strategies[index + 1] != strategies[index]
            or positions[index + 1][0] != positions[index][0]
        )
        if last_of_run:
            tower = positions[index][0]
            layers = (tower, positions[first][1], positions[index][1])
            plans.append(LayerPlan(layers=layers, strategy=strategies[index]))
            first = index + 1
    return tuple(plans)


class PlanHashOrder:
    """Order among plans otherwise equal, by the hash of their bytes.

    Hashing takes a quarter of a millisecond, so it is done at a tie only, and once.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @cached_property
    def _bytes(self) -> str:
        return self._plan.hash

    def __lt__(self, other: PlanHashOrder) -> bool:
        return self._bytes < other._bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanHashOrder) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)


class Evaluator:
    """Simulator of decisions, each once.

    ``tries`` counts simulations begun, ``count`` those completed.
    """

    def __init__(self, request: Request, simulator: Simulator, rule: MemoryRule) -> None:
        self.request = request
        self.simulator = simulator
        self.rule = rule
        self.count = 0
        self.tries = 0
        self._tables = shared_tables(request.model)
        self._cache: dict[Decision, Outcome] = {}

    @cached_property
    def rows(self) -> LayerCosts:
        """Costs of splits and FSDP units, kept by :meth:`for_request`: independent of memory."""
        lowering = self.simulator.lowering
        return LayerCosts(lowering, LayerWorkCache(lowering), self.simulator.pricer)

    def for_request(self, request: Request) -> Evaluator:
        """Evaluator of a request with different device memory only."""
        evaluator = Evaluator(request, self.simulator, self.rule)
        evaluator.rows = self.rows
        return evaluator

    def __call__(self, decision: Decision, cutoff_s: float = float("inf")) -> Outcome | None:
        """The outcome of a decision.

        None if it breaks a rule across layers, or certainly takes ``cutoff_s`` or longer.
        """
        cached = self._cache.get(decision)
        if cached is not None:
            return cached
        if (
            tied_embedding_violation(self.request.model, decision.strategies, self._tables)
            is not None
        ):
            return None
        self.tries += 1
        plan = build_plan(self.request, decision)
        simulation = self.simulator.run(plan, cutoff_s)
        if simulation is None:
            return None
        excess = max(self.rule.excess_bytes(row) for row in simulation.memory)
        self.count += 1
        outcome = Outcome(decision, plan, simulation, excess)
        self._cache[decision] = outcome
        return outcome
