"""Plans near a good one: what a change of one layer's strategy gains, or of several alike.

A shape that is not enumerated whole is looked into by estimates, which put plans that are about as
fast in a wrong order. From a simulated plan, strategy after strategy is replaced as long as that
makes the simulated step shorter (coordinate descent).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..spec.strategy import LayerStrategy
from .candidates import Decision, Outcome
from .options import OptionTable

OPTIONS_TRIED = 24
"""Options of a layer that are tried, those with the best estimates."""
LEAST_GAIN = 1e-9
Attempt = Callable[[Decision, float], Outcome | None]
"""Simulates a decision. None where it is of no interest, which none is that is faster than so many
seconds, or no more may be tried."""


def descend(start: Outcome, tables: Sequence[OptionTable], attempt: Attempt) -> None:
    """Try changes of a plan, each from the best plan until then, until none makes it faster.

    Args:
        start: a plan that fits.
        tables: the options of every layer.
        attempt: simulates a decision, and keeps what is good.
    """
    best, improves = start, True
    while improves:
        improves = False
        for layers in _alike(best.decision, tables):
            for strategy in _options(tables[layers[0]]):
                found = attempt(_changed(best.decision, layers, strategy), best.step_time_s)
                if found is None or not found.feasible:
                    continue
                if found.step_time_s < best.step_time_s * (1 - LEAST_GAIN):
                    best, improves = found, True


def _changed(decision: Decision, layers: Sequence[int], strategy: LayerStrategy) -> Decision:
    strategies = list(decision.strategies)
    for layer in layers:
        strategies[layer] = strategy
    return decision._replace(strategies=tuple(strategies))


def _alike(decision: Decision, tables: Sequence[OptionTable]) -> Iterator[tuple[int, ...]]:
    """Layers that change together: alike in the whole model, in a chunk, and one of those."""
    everywhere: dict[tuple[object, ...], list[int]] = {}
    for layer, strategy in enumerate(decision.strategies):
        key = (id(tables[layer]), strategy)
        chunk = bisect_right(decision.cuts, layer)
        everywhere.setdefault(key, []).append(layer)
        everywhere.setdefault((*key, chunk), []).append(layer)
    groups = [tuple(layers) for layers in everywhere.values()]
    yield from dict.fromkeys([*groups, *(layers[-1:] for layers in groups)])


def _options(table: OptionTable) -> list[LayerStrategy]:
    order = np.argsort(table.step_estimate_s, kind="stable")[:OPTIONS_TRIED]
    return [table.strategies[row] for row in order.tolist()]
