"""The best textbook plan with a proven bound, soon: the answer of a table of many requests.

Values of techniques that are priced at every place of a space take most of its seconds. Where some
are in play the textbook plans are those without them, the best of which is then tried with the
values of its own places; and the bound is that of the model's matrix products at the peak of all
devices, which holds whatever the technique.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ...spec.rules.plan_rules import stack_violation
from ...spec.rules.stack_limits import limits_violation
from ...spec.strategy import LayerStrategy, Sharding
from ..bounds.shape_values import ShapeValues
from ..candidates.evaluator import Decision, Evaluator, Outcome
from ..search.build import shape_bounds
from ..space.search_space import SearchSpace
from .textbook import TextbookPlans

MOST_VALUES = 4
"""Values of a place that are tried, the last (likely quickest) first."""


class QuickBest(NamedTuple):
    """The best textbook plan, None if none fits, and seconds that no plan beats.

    ``has_shapes``: False if no plan is legal.
    """

    outcome: Outcome | None
    bound_s: float
    has_shapes: bool = True


def quick_plan(evaluator: Evaluator) -> QuickBest:
    """Find the best textbook plan of a request, and a bound on every plan."""
    request = evaluator.request
    space = SearchSpace(request, evaluator.simulator)
    prices_places = space.techniques.price_places
    if prices_places:
        lean = replace(request, techniques=request.techniques.without_priced_places())
        evaluator = Evaluator(lean, evaluator.simulator, evaluator.rule)
    bounds = shape_bounds(evaluator)
    shapes = list(bounds.tables.space.shapes())
    if not shapes:
        return QuickBest(None, 0.0, has_shapes=False)
    plans = TextbookPlans(bounds, evaluator)
    best = min(plans.outcomes(shapes), key=plans.value, default=None)
    if not prices_places:
        values = ShapeValues(bounds, evaluator)
        return QuickBest(best, min(values.quick(shape) for shape in shapes))
    if best is not None:
        tried = (evaluator(decision) for decision in with_values(best, space))
        fitting = [one for one in tried if one is not None and one.feasible]
        best = min([best, *fitting], key=plans.value)
    return QuickBest(best, bounds.quick.compute.floor())


def with_values(best: Outcome, space: SearchSpace) -> Iterator[Decision]:
    """The plan with the last values of its places, then with those before them."""
    decision, shape = best.decision, best.decision.shape
    samples = space.request.workload.global_batch // shape.microbatches
    options: dict[tuple[int, LayerStrategy], list[LayerStrategy]] = {}
    for layer_class, strategy in zip(space.layer_classes, decision.strategies, strict=True):
        key = (layer_class, strategy)
        if key not in options:
            options[key] = list(_variants(space, *key, shape.ranks, samples))
    most = max(map(len, options.values()), default=0)
    for number in range(min(most, MOST_VALUES)):
        taken = {
            key: ones[max(0, len(ones) - 1 - number)] if ones else key[1]
            for key, ones in options.items()
        }
        keys = zip(space.layer_classes, decision.strategies, strict=True)
        yield decision._replace(strategies=tuple(taken[key] for key in keys))


def _variants(
    space: SearchSpace, layer_class: int, strategy: LayerStrategy, ranks: int, samples: int
) -> Iterator[LayerStrategy]:
    """Legal strategies of a layer that differ in their techniques alone."""
    index = space.first_of_class[layer_class]
    layer, request = space.layers[index], space.request
    values = request.techniques.values
    bare = replace(strategy, shard=Sharding(), techniques={})
    held = space.techniques.held(index, bare, ranks, samples // bare.data_parallel(ranks))
    for one in held.combined(bare)[1:]:
        variant = replace(one, shard=strategy.shard)
        if (
            space.techniques.violation(layer, variant, ranks) is None
            and limits_violation(variant, ranks, 1, request.stack) is None
            and stack_violation(variant, request.stack, values) is None
        ):
            yield variant
