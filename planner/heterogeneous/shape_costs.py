"""What the shapes over several device groups cost: tables of layer options, bounds, memory."""

from __future__ import annotations

from ...costmodel.kernel_latency.roofline import peak_flops_per_s
from ...costmodel.pricing.group_pricer import GroupPricer
from ...spec.model.towers import shared_tables
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision, Evaluator
from ..candidates.tied_embeddings import LayerLegal
from ..space.pipeline_shape import PipelineShape
from .compute_bounds import StageComputeBounds
from .efficiency_bound import EfficiencyBound
from .enumeration import StageTables
from .layout_by_layout import StagePlan
from .option_tables import StageOptions
from .proportional_split import proportional_split
from .search_space import HeterogeneousSpace
from .stage_classes import StageClassTable


class HeterogeneousCosts:
    """Costs of the shapes of a request, each found once.

    Args:
        evaluator: of the request; simulates its decisions once.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        request, simulator = evaluator.request, evaluator.simulator
        self.request = request
        prices: GroupPricer = simulator.prices
        self._classes = StageClassTable(prices)
        self.options = StageOptions(request, simulator, self._classes)
        self._ties = shared_tables(request.model)
        self._work = StageComputeBounds(self.options, self._classes, simulator, self._ties)
        self._floor = EfficiencyBound(self.options, simulator)
        dtype = request.workload.dtype.param
        rates = {
            group.name: peak_flops_per_s(prices.inside(group.name).machine.device, dtype)
            for group in request.cluster.groups
        }
        self.space = HeterogeneousSpace(request, self.options.whole, rates)
        self.layer_classes = self.options.whole.layer_classes

    def _stage_plan(self, shape: PipelineShape) -> StagePlan | None:
        """Usual tables, budgets and shares of a shape's stages; None where they have no room."""
        seconds = self._work.stage_seconds(shape)
        if any(s == float("inf") for s in seconds):
            return None
        tables, budgets = self._tables(shape, usual=True), self._budgets(shape)
        shares = proportional_split(shape, tables, budgets, seconds)
        return None if shares is None else StagePlan(tables, budgets, shares)

    def _tables(self, shape: PipelineShape, usual: bool = False) -> list[StageTables]:
        """Tables of every layer on every stage."""
        tied: dict[int, tuple[int, ...]] = {}
        if len(self._ties) > 1 and shape.stages == 1:
            tied = dict.fromkeys(self._ties[:-1], ()) | {self._ties[-1]: self._ties}
        elif len(self._ties) > 1:  # where a cut leaves them in the head's chunk, as ShapeCosts
            tied = {layer: () for layer in self._ties[:-1] if layer}
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

    def _budgets(self, shape: PipelineShape) -> list[list[float]]:
        """Live bytes that certainly fit, by stage and class of ranks."""
        communicators = int(shape.devices > 1) + (4 if shape.stages > 1 else 0)
        rule, stack = self.evaluator.rule, self.request.stack

        def budget(group: str) -> float:
            capacity = self.request.cluster.group(group).memory.hbm_bytes
            return rule.live_budget_bytes(capacity, stack, communicators)

        return [[budget(part.group) for part in place] for place in shape.places]

    def _legal(self, decision: Decision) -> LayerLegal:
        """Whether a layer may have a strategy on its stage of a decision."""
        shape, classes = decision.shape, self._classes.of(decision.shape)
        stage_of = {
            shape.position(stage, chunk): stage
            for stage in range(shape.stages)
            for chunk in range(shape.chunks)
        }

        def legal(layer: int, strategy: LayerStrategy) -> bool:
            position = sum(cut <= layer for cut in decision.boundaries[1:-1])
            stage = classes[stage_of[position]]
            return strategy in self.options.strategies(self.layer_classes[layer], stage)

        return legal
