"""Prices of a relaxed step: what a second of each pass and a byte of each stage are worth.

Whatever prices are chosen, the least that all layers cost under them is a bound of the step (weak
duality), so nothing rests on how well they were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..chains.chain_weights import WEIGHTED_COLUMNS
from ..chains.fixed_cuts import Floats
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import COLUMNS, INSIDE, SHARED, WORK
from .layer_groups import LayerGroups


@dataclass(frozen=True, slots=True)
class DualPrices:
    """Prices of what a step needs.

    ``weights``: of the columns of pass tables at each position, shape (positions, COLUMNS, KINDS).
    ``rest_s``: what the weighed passes have that is of no layer. ``byte_price_s``: seconds a byte
    of
    each stage. ``messages``: weight of what each position hands on.
    """

    weights: Floats
    rest_s: float
    messages: Floats
    byte_price_s: Floats


def make_dual_prices(
    groups: LayerGroups, weightings: Floats, hops: Floats, inside: Floats, byte_price_s: Floats
) -> DualPrices:
    """Prices from how passes are weighed.

    Args:
        groups: of the pipeline.
        weightings: weight of each pass by each of ``WEIGHTED_COLUMNS``, shape (positions, WAYS,
        KINDS).
        hops: weight of the messages into each position, shape (2, positions).
        inside: weight of what hides beside another pass, shape (positions, KINDS).
        byte_price_s: seconds a byte of each stage.
    """
    weights = np.zeros((len(weightings), COLUMNS, KINDS))
    weights[:, list(WEIGHTED_COLUMNS)] = weightings
    weights[:, WORK] += weightings[:, WEIGHTED_COLUMNS.index(SHARED)]
    weights[:, INSIDE] += inside
    rest_s = float((hops * groups.travel_s).sum() + (weightings * groups.per_pass_s).sum())
    return DualPrices(weights, rest_s, outgoing_messages(hops), byte_price_s)


def outgoing_messages(hops: Floats) -> Floats:
    """Messages of what each position hands on: into the next one, and back into itself."""
    found: Floats = hops[1].copy()
    found[:-1] += hops[0, 1:]
    return found


def lagrangian_bound(
    groups: LayerGroups, dual_prices: DualPrices, budget_bytes: Floats
) -> tuple[float, list[int]]:
    """A bound of the step, and the best option of each cell.

    Args:
        groups: of the pipeline.
        dual_prices: any.
        budget_bytes: of each stage.
    """
    total = dual_prices.rest_s - float(dual_prices.byte_price_s @ budget_bytes)
    best = [0] * len(groups.groups)
    seconds = [0.0] * len(groups.groups)
    for equivalent_groups in groups.equivalent_groups.values():
        for number, own_s in zip(
            equivalent_groups, _costs(groups, equivalent_groups, dual_prices), strict=True
        ):
            best[number] = row = int(own_s.argmin())
            seconds[number] = float(own_s[row])
    fixed_s = sum(s * c.layers for s, c in zip(seconds, groups.groups, strict=True))
    return total + fixed_s + _shortest_path(groups, seconds), best


def _shortest_path(groups: LayerGroups, seconds: Sequence[float]) -> float:
    """The least that runs of layers cost on a path from the first layer to the last.

    Args:
        groups: of the pipeline.
        seconds: what a layer costs in each cell.
    """
    if not groups.stage_arcs:
        return 0.0
    each = (sum(n * seconds[number] for number, n in own.layers) for own in groups.contents)
    content_s = np.fromiter(each, dtype=np.float64)
    found_s = np.zeros(1)
    for flow in groups.stage_arcs:
        ends_s = np.full(int(flow.stops.max()) + 1, np.inf)
        np.minimum.at(ends_s, flow.stops, found_s[flow.starts] + content_s[flow.contents])
        found_s = ends_s
    return float(found_s[-1])


def min_cost_by_class(groups: LayerGroups, dual_prices: DualPrices) -> dict[int, float]:
    """The least that a layer of each kind costs under prices, in cells of one position."""
    return {
        kind: float(_costs(groups, equivalent_groups, dual_prices).min())
        for (kind, _), equivalent_groups in groups.equivalent_groups.items()
    }


def _costs(
    groups: LayerGroups, equivalent_groups: Sequence[int], dual_prices: DualPrices
) -> Floats:
    """What a layer costs under prices in cells of one kind and seat, shape (cells, options)."""
    columns = groups.columns(equivalent_groups[0])
    weights = dual_prices.weights[[groups.groups[number].position for number in equivalent_groups]]
    flat = weights.reshape(len(equivalent_groups), -1)
    found: Floats = flat @ columns.reshape(len(columns), -1).T
    for own_s, number in zip(found, equivalent_groups, strict=True):
        byte_price_s = dual_prices.byte_price_s[groups.stages[number]]
        if number in groups.extra_send_s:
            own_s += (
                dual_prices.messages[groups.groups[number].position] * groups.extra_send_s[number]
            )
        if byte_price_s > 0:
            own_s += byte_price_s * groups.bytes[number]
    return found
