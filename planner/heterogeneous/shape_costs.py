"""Tables, bounds, memory and legality of shapes over several device groups."""

from __future__ import annotations

from ...costmodel.kernel_latency.roofline import peak_flops_per_s
from ...costmodel.pricing.group_pricer import GroupPricer
from ...spec.model.towers import shared_tables
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision, Evaluator
from ..candidates.tied_embeddings import IsLegal
from ..space.pipeline_shape import PipelineShape
from .compute_bounds import StageComputeBounds
from .efficiency_bound import EfficiencyBound
from .layout_by_layout import StagePlan
from .option_tables import StageOptions, StageTables
from .proportional_split import proportional_split
from .search_space import HeterogeneousSpace, is_uniform
from .stage_classes import StageClassTable


class HeterogeneousCosts:
    """Costs of the shapes of a request, each computed once."""

    def __init__(self, evaluator: Evaluator, uniform_only: bool = False) -> None:
        request, simulator = evaluator.request, evaluator.simulator
        self.request = request
        prices: GroupPricer = simulator.prices
        self._rule = evaluator.rule
        self._stack = simulator.lowering.stack
        self._classes = StageClassTable(prices)
        self.options = StageOptions(request, simulator, self._classes)
        self._tied = shared_tables(request.model)
        self.compute = StageComputeBounds(self.options, self._classes, simulator, self._tied)
        self.efficiency = EfficiencyBound(self.options, simulator)
        dtype = request.workload.dtype.param
        rates = {
            group.name: peak_flops_per_s(prices.inside(group.name).machine.device, dtype)
            for group in request.cluster.groups
        }
        self._uniform_only = uniform_only
        self.space = HeterogeneousSpace(request, self.options.whole, rates, self._has_plans)
        self.layer_classes = self.options.whole.layer_classes

    def _has_plans(self, shape: PipelineShape) -> bool:
        """False if a shape is unwanted or has an illegal layer."""
        if self._uniform_only and not is_uniform(shape):
            return False
        return self.compute.bound_s(shape) < float("inf")

    def stage_plan(self, shape: PipelineShape) -> StagePlan | None:
        """Usual tables, budgets and shares of stages; None without room."""
        seconds = self.compute.stage_seconds(shape)
        if any(s == float("inf") for s in seconds):
            return None
        tables, budgets = self.tables(shape, usual=True), self.budgets(shape)
        shares = proportional_split(shape, tables, budgets, seconds)
        return None if shares is None else StagePlan(tables, budgets, shares)

    def tables(self, shape: PipelineShape, usual: bool = False) -> list[StageTables]:
        """Tables of every layer on every stage."""
        tied: dict[int, tuple[int, ...]] = {}
        if len(self._tied) > 1 and shape.stages == 1:
            tied = dict.fromkeys(self._tied[:-1], ()) | {self._tied[-1]: self._tied}
        elif len(self._tied) > 1:  # some boundaries leave them in the head's chunk: ShapeContexts
            tied = {layer: () for layer in self._tied[:-1] if layer}
        return [
            [
                self.options.tables(
                    layer,
                    stage,
                    shape.microbatches,
                    tied.get(layer),
                    shape.overlaps_passes,
                    usual,
                    shape.stages == 1,
                )
                for layer in range(len(self.layer_classes))
            ]
            for stage in self._classes.of(shape)
        ]

    def budgets(self, shape: PipelineShape) -> list[list[float]]:
        """Live bytes that certainly fit, by stage and rank class."""
        communicators = int(shape.devices > 1) + (4 if shape.stages > 1 else 0)
        rule, stack = self._rule, self._stack

        def budget(group: str) -> float:
            capacity = self.request.cluster.group(group).memory.hbm_bytes
            return rule.live_budget_bytes(capacity, stack, communicators)

        return [[budget(part.group) for part in placement] for placement in shape.places]

    def legality(self, decision: Decision) -> IsLegal:
        """Legality of strategies on the stages of a decision."""
        shape, classes = decision.shape, self._classes.of(decision.shape)
        stage_of = {
            shape.position(stage, chunk): stage
            for stage in range(shape.stages)
            for chunk in range(shape.chunks)
        }

        def is_legal(layer: int, strategy: LayerStrategy) -> bool:
            position = sum(start <= layer for start in decision.boundaries[1:-1])
            stage = classes[stage_of[position]]
            return strategy in self.options.strategies(self.layer_classes[layer], stage)

        return is_legal
