"""Plans from relaxed steps: the layers of a pipeline's linear relaxation, made whole.

A relaxed step says how many layers of each place take which option. Layers with the main layout
only are relaxed again, so that activations are not laid out anew between them; fractions of layers
are rounded, the largest up first; and where the simulated plan does not fit a stage, its budget is
lowered by as much and the step is relaxed once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from ...spec.report.report import MemoryRow
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision
from ..relaxation.pipeline_bounds import BoundedPipeline, FractionalPlan
from .layout_by_layout import TryDecision, overflow_bytes

ATTEMPTS = 3
NEAR_BOUND = 1.02
"""A plan within this factor of the bound of its cuts is not looked for again."""


def round_relaxation(
    cut: BoundedPipeline,
    enough_s: float,
    attempt: TryDecision,
    excess_bytes: Callable[[MemoryRow], float],
) -> None:
    """Try plans near the relaxed step of a pipeline.

    Args:
        cut: whose step was relaxed.
        enough_s: plans that take longer are of no interest.
        attempt: simulates a decision.
        excess_bytes: how far a simulated stage is over what it may reserve; 0 or less if it fits.
    """
    if cut.fractional is None:
        return
    alone = cut.in_layout(_main_layout(cut, cut.fractional))
    for each in (cut, alone):
        _try_within(each, enough_s, attempt, excess_bytes)


def _try_within(
    cut: BoundedPipeline,
    enough_s: float,
    attempt: TryDecision,
    excess_bytes: Callable[[MemoryRow], float],
) -> None:
    """Try the plan of a relaxed step, again within less where it does not fit."""
    if cut.fractional is not None:  # at hand; solved in another way the layers may come out better
        first = attempt(_decision(cut, cut.fractional))
        if first is not None and first.feasible and first.step_time_s < NEAR_BOUND * cut.bound(0.0):
            return
    budgets = np.full(cut.shape.stages, cut.budget_bytes)
    for _ in range(ATTEMPTS):
        bound_s, fractional = cut.relaxed(budgets, enough_s)
        if fractional is None or bound_s >= enough_s:
            return
        outcome = attempt(_decision(cut, fractional))
        if outcome is None or outcome.feasible:
            return
        for row in outcome.simulation.memory:
            budgets[row.stage] -= overflow_bytes(row, excess_bytes)


def _main_layout(cut: BoundedPipeline, fractional: FractionalPlan) -> object:
    """The activation layout that most layers have."""
    found: defaultdict[object, float] = defaultdict(float)
    for group, own in zip(fractional.groups.groups, fractional.mix, strict=True):
        for option, layers in own.items():
            found[cut.tables[group.kind].strategies[option].layout] += layers
    return max(found, key=lambda layout: found[layout])


def _decision(cut: BoundedPipeline, fractional: FractionalPlan) -> Decision:
    """The plan of a mix, its fractions of layers made whole."""
    left = {
        (group.position, group.layer_position): _rounded(own, group.layers)
        for group, own in zip(fractional.groups.groups, fractional.mix, strict=True)
    }
    strategies: list[LayerStrategy] = []
    for position, (start, stop) in enumerate(pairwise(cut.boundaries)):
        for layer in range(start, stop):
            layer_position = cut.layer_position(position, layer)
            table = cut.tables[layer_position[0]]
            strategies.append(table.strategies[left[position, layer_position].pop()])
    return Decision(cut.shape, tuple(cut.boundaries), tuple(strategies))


def _rounded(own: Mapping[int, float], count: int) -> list[int]:
    """Options of ``count`` layers, like ones beside each other."""
    whole = {option: int(layers) for option, layers in own.items()}
    rest = sorted(own, key=lambda option: (whole[option] - own[option], option))
    for option in rest[: count - sum(whole.values())]:
        whole[option] += 1
    return [option for option, layers in whole.items() for _ in range(layers)]
