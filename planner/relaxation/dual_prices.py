"""Prices of a relaxed step: what a second of each pass and a byte of each stage are worth.

Whatever prices are chosen, the least that all layers cost under them is a bound of the step (weak
duality), so nothing rests on how well they were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..chains.chain_weights import WEIGHED
from ..chains.fixed_cuts import Floats
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import COLUMNS, INSIDE, SHARED, WORK
from .layer_groups import Cells


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of what a step needs.

    ``weights``: of the columns of pass tables at each position, shape (positions, COLUMNS, KINDS).
    ``rest_s``: what the weighed passes have that is of no layer. ``bytes_s``: seconds a byte of
    each stage. ``messages``: weight of what each position hands on.
    """

    weights: Floats
    rest_s: float
    messages: Floats
    bytes_s: Floats


def priced(cells: Cells, ways: Floats, hops: Floats, inside: Floats, bytes_s: Floats) -> Prices:
    """Prices from how passes are weighed.

    Args:
        cells: of the pipeline.
        ways: weight of each pass by each of ``WEIGHED``, shape (positions, WAYS, KINDS).
        hops: weight of the messages into each position, shape (2, positions).
        inside: weight of what hides beside another pass, shape (positions, KINDS).
        bytes_s: seconds a byte of each stage.
    """
    weights = np.zeros((len(ways), COLUMNS, KINDS))
    weights[:, list(WEIGHED)] = ways
    weights[:, WORK] += ways[:, WEIGHED.index(SHARED)]
    weights[:, INSIDE] += inside
    rest_s = float((hops * cells.travel_s).sum() + (ways * cells.promised_s).sum())
    return Prices(weights, rest_s, handed_on(hops), bytes_s)


def handed_on(hops: Floats) -> Floats:
    """Messages of what each position hands on: into the next one, and back into itself."""
    found: Floats = hops[1].copy()
    found[:-1] += hops[0, 1:]
    return found


def least(cells: Cells, prices: Prices, budget_bytes: Floats) -> tuple[float, list[int]]:
    """A bound of the step, and the best option of each cell.

    Args:
        cells: of the pipeline.
        prices: any.
        budget_bytes: of each stage.
    """
    total = prices.rest_s - float(prices.bytes_s @ budget_bytes)
    best = [0] * len(cells.cells)
    seconds = [0.0] * len(cells.cells)
    for alike in cells.alike.values():
        for number, own_s in zip(alike, _costs(cells, alike, prices), strict=True):
            best[number] = row = int(own_s.argmin())
            seconds[number] = float(own_s[row])
    fixed_s = sum(s * c.layers for s, c in zip(seconds, cells.cells, strict=True))
    return total + fixed_s + _least_path(cells, seconds), best


def _least_path(cells: Cells, seconds: Sequence[float]) -> float:
    """The least that runs of layers cost on a path from the first layer to the last.

    Args:
        cells: of the pipeline.
        seconds: what a layer costs in each cell.
    """
    if not cells.flows:
        return 0.0
    each = (sum(n * seconds[number] for number, n in own.layers) for own in cells.contents)
    content_s = np.fromiter(each, dtype=np.float64)
    found_s = np.zeros(1)
    for flow in cells.flows:
        ends_s = np.full(int(flow.stops.max()) + 1, np.inf)
        np.minimum.at(ends_s, flow.stops, found_s[flow.starts] + content_s[flow.contents])
        found_s = ends_s
    return float(found_s[-1])


def least_of_kinds(cells: Cells, prices: Prices) -> dict[int, float]:
    """The least that a layer of each kind costs under prices, in cells of one position."""
    return {
        kind: float(_costs(cells, alike, prices).min()) for (kind, _), alike in cells.alike.items()
    }


def _costs(cells: Cells, alike: Sequence[int], prices: Prices) -> Floats:
    """What a layer costs under prices in cells of one kind and seat, shape (cells, options)."""
    columns = cells.columns(alike[0])
    weights = prices.weights[[cells.cells[number].position for number in alike]]
    flat = weights.reshape(len(alike), -1)
    found: Floats = flat @ columns.reshape(len(columns), -1).T
    for own_s, number in zip(found, alike, strict=True):
        bytes_s = prices.bytes_s[cells.stages[number]]
        if number in cells.sent_s:
            own_s += prices.messages[cells.cells[number].position] * cells.sent_s[number]
        if bytes_s > 0:
            own_s += bytes_s * cells.bytes[number]
    return found
