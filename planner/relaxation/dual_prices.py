"""Dual prices of a relaxed step: of pass seconds and stage bytes.

Under any prices the minimum cost of all layers is a bound of the step (weak duality), so soundness
does not depend on their quality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..chains.chain_weights import expand_weightings, of_column
from ..tables.arrays import Floats, Records, as_matrix
from .layer_groups import LayerGroups


@dataclass(frozen=True, slots=True)
class DualPrices:
    """Dual prices of a step.

    ``weights``: of ``PASS_COLUMNS`` at each position, shape (positions,). ``rest_s``: seconds of
    weighted passes outside any layer. ``messages``: weight of each position's messages.
    ``byte_price_s``: seconds a byte of each memory and stage, shape (memories, stages).
    """

    weights: Records
    rest_s: float
    messages: Floats
    byte_price_s: Floats


def make_dual_prices(
    groups: LayerGroups,
    weightings: Floats,
    hops: Floats,
    overlappable: Floats,
    byte_price_s: Floats,
) -> DualPrices:
    """Dual prices from weights of passes.

    Args:
        groups: of the pipeline.
        weightings: weight of each pass by ``WEIGHTED_COLUMNS``, shape (positions, WEIGHTING_COUNT,
            KINDS).
        hops: weight of messages into each position, shape (2, positions).
        overlappable: weight of the overlappable part of passes, shape (positions, KINDS).
        byte_price_s: seconds a byte of each memory and stage.
    """
    weights = expand_weightings(weightings)
    weights["work"] += of_column(weightings, "slowdown")
    weights["overlappable"] += overlappable
    rest_s = float((hops * groups.travel_s).sum() + (weightings * groups.per_pass_s).sum())
    return DualPrices(weights, rest_s, outgoing_messages(hops), byte_price_s)


def outgoing_messages(hops: Floats) -> Floats:
    """Messages sent by each position: to the next, and to itself."""
    messages: Floats = hops[1].copy()
    messages[:-1] += hops[0, 1:]
    return messages


def lagrangian_bound(
    groups: LayerGroups, dual_prices: DualPrices, budgets: Floats
) -> tuple[float, list[int]]:
    """Bound of the step, and the best option of each group.

    ``budgets``: bytes of each memory and stage.
    """
    total = dual_prices.rest_s
    for byte_price_s, budget_bytes in zip(dual_prices.byte_price_s, budgets, strict=True):
        total -= float(byte_price_s @ budget_bytes)
    best = [0] * len(groups.groups)
    seconds = [0.0] * len(groups.groups)
    for members in groups.equivalent_groups.values():
        costs = _reduced_costs(groups, members, dual_prices)
        for number, option_s in zip(members, costs, strict=True):
            best[number] = row = int(option_s.argmin())
            seconds[number] = float(option_s[row])
    fixed_s = sum(s * group.layers for s, group in zip(seconds, groups.groups, strict=True))
    return total + fixed_s + _shortest_path(groups, seconds), best


def _shortest_path(groups: LayerGroups, seconds: Sequence[float]) -> float:
    """Minimum cost of runs on a path from first to last."""
    if not groups.stage_arcs:
        return 0.0
    costs = (sum(n * seconds[number] for number, n in run.layers) for run in groups.contents)
    content_s = np.fromiter(costs, dtype=np.float64)
    path_s = np.zeros(1)
    for arcs in groups.stage_arcs:
        ends_s = np.full(int(arcs.stops.max()) + 1, np.inf)
        np.minimum.at(ends_s, arcs.stops, path_s[arcs.starts] + content_s[arcs.contents])
        path_s = ends_s
    return float(path_s[-1])


def min_cost_by_class(groups: LayerGroups, dual_prices: DualPrices) -> dict[int, float]:
    """Minimum cost of a layer by class, in groups of one position."""
    return {
        layer_class: float(_reduced_costs(groups, members, dual_prices).min())
        for (layer_class, _), members in groups.equivalent_groups.items()
    }


def _reduced_costs(groups: LayerGroups, members: Sequence[int], dual_prices: DualPrices) -> Floats:
    """Layer costs under prices in one cost class, shape (groups, options)."""
    option_costs = as_matrix(groups.option_costs(members[0]))
    weights = dual_prices.weights[[groups.groups[number].position for number in members]]
    costs: Floats = as_matrix(weights) @ option_costs.T
    for option_s, number in zip(costs, members, strict=True):
        byte_price_s = dual_prices.byte_price_s[:, groups.stages[number]].tolist()
        if number in groups.extra_send_s:
            messages = dual_prices.messages[groups.groups[number].position]
            option_s += messages * groups.extra_send_s[number]
        for price_s, option_bytes in zip(byte_price_s, groups.bytes[number], strict=True):
            if price_s > 0:
                option_s += price_s * option_bytes
    return costs
