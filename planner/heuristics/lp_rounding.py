"""Plans rounded from the linear relaxation of a pipeline's step.

The relaxed step gives layers of each group by option. It is solved again in the main layout only,
so that activations need no redistribution between layers; fractions of layers are rounded, the
largest up first; after a simulated overflow the stage's budget is lowered by as much and the step
relaxed once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise

from ...spec.report.report import MemoryRow
from ...spec.strategy import LayerStrategy
from ..bounds.shape_relaxations import ShapeRelaxations
from ..candidates.evaluator import Decision
from ..relaxation.pipeline_bounds import BoundedPipeline, FractionalPlan
from ..space.pipeline_shape import PipelineShape
from .heuristic import TryDecision
from .layout_by_layout import overflow_bytes

ATTEMPTS = 3
NEAR_BOUND = 1.02
"""Once a plan is within this factor of the bound of its boundaries, no other is looked for."""
ExcessBytes = Callable[[MemoryRow], float]


class LpRounding:
    """Plans near relaxed steps within likely boundaries, each shape once.

    Args:
        relaxations: of the shapes.
        best_s: step time to beat in a shape.
        excess_bytes: bytes of a simulated stage over its limit; 0 or less if it fits.
        most: maximum number of shapes.
        memories: numbers of memories in budgets, by their tiers.
    """

    def __init__(
        self,
        relaxations: ShapeRelaxations,
        best_s: Callable[[PipelineShape], float],
        excess_bytes: ExcessBytes,
        most: int,
        memories: Mapping[str, int],
    ) -> None:
        self._relaxations = relaxations
        self._best_s = best_s
        self._excess_bytes = excess_bytes
        self._most = most
        self._memories = memories
        self._rounded = 0
        self._may_be_best: dict[PipelineShape, bool] = {}

    def search(self, shape: PipelineShape, attempt: TryDecision) -> None:
        """Try plans near the relaxed step of a shape."""
        if shape in self._may_be_best or self._rounded >= self._most:
            return
        enough_s, cut = self._best_s(shape), None
        if self._relaxations.can_bound(shape):
            cut = self._relaxations.relaxed(shape, enough_s)
        self._may_be_best[shape] = cut is not None
        if cut is not None:
            self._rounded += 1
            round_relaxation(cut, enough_s, attempt, self._excess_bytes, self._memories)

    def may_be_best(self, shape: PipelineShape) -> bool:
        """False if no plan within likely boundaries can be best."""
        return self._may_be_best.get(shape, True)


def round_relaxation(
    cut: BoundedPipeline,
    enough_s: float,
    attempt: TryDecision,
    excess_bytes: ExcessBytes,
    memories: Mapping[str, int],
) -> None:
    """Try plans near the relaxed step of a pipeline.

    Args:
        cut: pipeline with a relaxed step.
        enough_s: upper limit of plans of interest, in seconds.
        attempt: simulates a decision.
        excess_bytes: bytes of a simulated stage over its limit; 0 or less if it fits.
        memories: numbers of memories in budgets, by their tiers.
    """
    if cut.fractional is None:
        return
    main_only = cut.in_layout(_main_layout(cut, cut.fractional))
    for pipeline in (cut, main_only):
        _try_rounded(pipeline, enough_s, attempt, excess_bytes, memories)


def _try_rounded(
    cut: BoundedPipeline,
    enough_s: float,
    attempt: TryDecision,
    excess_bytes: ExcessBytes,
    memories: Mapping[str, int],
) -> None:
    """Try a relaxed step's plan, with less memory after overflow."""
    if cut.fractional is not None:  # at hand; solved in another way the layers may come out better
        first = attempt(_decision(cut, cut.fractional))
        if first is not None and first.feasible and first.step_time_s < NEAR_BOUND * cut.bound(0.0):
            return
    budgets = cut.budgets
    for _ in range(ATTEMPTS):
        bound_s, fractional = cut.relaxed(budgets, enough_s)
        if fractional is None or bound_s >= enough_s:
            return
        outcome = attempt(_decision(cut, fractional))
        if outcome is None or outcome.feasible:
            return
        for row in outcome.simulation.memory:
            if (memory := memories.get(row.tier)) is not None:
                budgets[memory, row.stage] -= overflow_bytes(row, excess_bytes)


def _main_layout(cut: BoundedPipeline, fractional: FractionalPlan) -> object:
    counts: defaultdict[object, float] = defaultdict(float)
    for group, mix in zip(fractional.groups.groups, fractional.mix, strict=True):
        for option, layers in mix.items():
            counts[cut.tables[group.layer_class].strategies[option].layout] += layers
    return max(counts, key=lambda layout: counts[layout])


def _decision(cut: BoundedPipeline, fractional: FractionalPlan) -> Decision:
    """Plan of a mix, its fractions of layers rounded."""
    options = {
        (group.position, group.layer_position): _rounded(mix, group.layers)
        for group, mix in zip(fractional.groups.groups, fractional.mix, strict=True)
    }
    strategies: list[LayerStrategy] = []
    for position, (start, stop) in enumerate(pairwise(cut.boundaries)):
        for layer in range(start, stop):
            layer_position = cut.layer_position(position, layer)
            table = cut.tables[layer_position[0]]
            strategies.append(table.strategies[options[position, layer_position].pop()])
    return Decision(cut.shape, tuple(cut.boundaries), tuple(strategies))


def _rounded(mix: Mapping[int, float], count: int) -> list[int]:
    """Options of ``count`` layers, equal ones side by side."""
    whole = {option: int(layers) for option, layers in mix.items()}
    rest = sorted(mix, key=lambda option: (whole[option] - mix[option], option))
    for option in rest[: count - sum(whole.values())]:
        whole[option] += 1
    return [option for option, layers in whole.items() for _ in range(layers)]
