"""Textbook plans: those that people try first, always simulated.

Data parallelism with each sharding level; tensor parallelism inside a node beside it; with even
1F1B and interleaved pipelines; experts over ranks of data parallelism; long sequences in a ring;
each without and with full recomputation. Of each family, in the order of their estimates, the
likely fastest that fits is simulated, so that an answer's ties and runners-up are true: estimates
of uniform plans are within a few per cent of their simulated steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...spec.rules.stack_limits import shard_kind
from ...spec.strategy import LayerStrategy
from ..bounds.shape_bounds import ShapeBounds
from ..candidates.evaluator import Evaluator, Outcome
from ..candidates.family import Family, strategy_family
from ..search.build import shape_bounds
from ..space.pipeline_shape import PipelineShape
from ..space.usual_options import FewValues
from .uniform_heuristic import EstimatedPlan, UniformHeuristic
from .uniform_plans import UniformShapePlans
from .uniform_strategies import UniformStrategies

NEAR, FAR = 1.1, 2.0
"""Families estimated within the first multiple of the best value are all simulated; at least
``LEAST_FAMILIES`` within the second."""
LEAST_FAMILIES, FAMILIES, TRIES, PASSES = 5, 16, 4, 60_000
"""Families tried, plans of each, and simulated passes after which no more than the least are."""
MOST_CHUNKS, LONG_SEQUENCE = 8, 16_384
PIPELINE_SHARDS = ("zero0", "zero1")
MICRO_BATCHES = 6
"""Micro-batch counts of a width and number of stages: 1, 2, 4, … samples of a replica."""


def fastest_textbook_plan(evaluator: Evaluator) -> Outcome | None:
    """The best textbook plan of a request; None if none fits."""
    plans = TextbookPlans(shape_bounds(evaluator), evaluator)
    return min(plans.outcomes(list(plans.space.shapes())), key=plans.value, default=None)


class TextbookPlans:
    """Textbook plans of a request.

    Args:
        bounds: of its shapes.
        evaluator: simulates decisions once.
    """

    def __init__(self, bounds: ShapeBounds, evaluator: Evaluator) -> None:
        self.space = bounds.tables.space
        self._budget_bytes = bounds.contexts.live_budget_bytes
        self._evaluator = evaluator
        self._objective = evaluator.request.objective
        strategies = UniformStrategies(self.space, self._is_textbook, FewValues())
        self._heuristic = UniformHeuristic(
            lambda shape: UniformShapePlans(bounds, strategies, shape), self._budget_bytes
        )
        levels = evaluator.request.cluster.levels
        self._inner = min((x.group_size for x in levels if x.group_size > 1), default=1)
        self._level_sizes = {level.group_size for level in levels}

    def outcomes(
        self, shapes: Sequence[PipelineShape], best: Outcome | None = None
    ) -> list[Outcome]:
        """Feasible textbook plans among shapes, the likely fastest of each near family.

        Args:
            shapes: of the request.
            best: the best plan; None: the best of those tried.
        """
        best_value = float("inf") if best is None else self.value(best)
        simulated, passes = list[Outcome](), 0
        for estimates in self._families(shapes)[:FAMILIES]:
            enough = len(simulated) >= LEAST_FAMILIES
            if enough and (estimates[0].value > NEAR * best_value or passes > PASSES):
                break
            for estimate in estimates[:TRIES]:
                shape = estimate.shape
                passes += shape.passes
                limit_s = FAR * best_value / self._objective.factor(shape)
                outcome = self._evaluator(estimate.decision, limit_s)
                if outcome is None:
                    break
                if outcome.feasible:
                    simulated.append(outcome)
                    best_value = min(best_value, self.value(outcome))
                    break
        return simulated

    def value(self, outcome: Outcome) -> float:
        """Objective of a simulated plan."""
        return outcome.step_time_s * self._objective.factor(outcome.decision.shape)

    def _families(self, shapes: Sequence[PipelineShape]) -> list[list[EstimatedPlan]]:
        """Plans that seem to fit by family, the likely fastest first."""
        families: dict[Family, list[EstimatedPlan]] = {}
        for shape in self._textbook_shapes(shapes):
            budget = self._budget_bytes(shape)
            for plan in self._heuristic.estimated(shape, self._objective.factor(shape)):
                if plan.bytes <= budget:
                    family = strategy_family(plan.strategy, shape.ranks, shape.stages)
                    families.setdefault(family, []).append(plan)
        ordered = [sorted(group, key=lambda e: e[:2]) for group in families.values()]
        return sorted(ordered, key=lambda estimates: estimates[0][:2])

    def _textbook_shapes(self, shapes: Sequence[PipelineShape]) -> list[PipelineShape]:
        blocks = self._evaluator.request.model.block_count
        most = max((shape.devices for shape in shapes), default=0)
        kept: dict[tuple[int, int], list[PipelineShape]] = {}
        for shape in shapes:
            is_even = blocks % shape.positions == 0 and shape.chunks <= MOST_CHUNKS
            is_usual = shape.kind == "1f1b" or (shape.kind == "interleaved" and is_even)
            if shape.devices == most and is_usual and shape.positions <= blocks:
                kept.setdefault((shape.stages, shape.chunks), []).append(shape)
        return [
            shape
            for group in kept.values()
            for shape in sorted(group, key=lambda s: -s.microbatches)[:MICRO_BATCHES]
        ]

    def _is_textbook(self, strategy: LayerStrategy, shape: PipelineShape) -> bool:
        n = strategy.state_ranks(shape.ranks)
        kind = "zero0" if n == 1 else shard_kind(strategy.shard, n)
        if kind == "hsdp" and strategy.shard.parameters * strategy.weight_split not in (
            self._level_sizes
        ):
            return False
        if shape.stages > 1 and n > 1 and kind not in self._pipeline_shards:
            return False
        words = ("none", "full") if strategy.recompute != "selective-ops" else ("selective-ops",)
        is_long = self._evaluator.request.workload.seq_len >= LONG_SEQUENCE
        return (
            strategy.recompute in words
            and not strategy.ulysses
            and strategy.tp <= self._inner
            and strategy.etp in (1, strategy.tp)
            and (strategy.cp == 1 or is_long)
        )

    @property
    def _pipeline_shards(self) -> tuple[str, ...]:
        """Levels beside a pipeline: the first two, or those of a stack that lacks zero1."""
        shards = self._evaluator.request.stack.limits.pipeline_shard
        return PIPELINE_SHARDS if "zero1" in shards else shards
