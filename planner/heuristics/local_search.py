"""Local search from a good plan, by changes of layer strategies.

Estimates put plans of about equal speed in a wrong order. From a simulated plan, strategy after
strategy is replaced while the simulated step gets shorter (coordinate descent). Where memory
binds, a layer may need bytes that only another can free: then two changes are made at once, in the
order of their estimates.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision, Outcome
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Floats
from ..tables.option_table import OptionTable
from .heuristic import TryDecision

OPTIONS_TRIED = 24
"""Options of a layer that are tried, those with the best estimates."""
EXCHANGES_TRIED = 400
"""Pairs of changes that are tried from one plan."""
LEAST_GAIN = 1e-9
FreeBytes = Callable[[Outcome], Floats]
"""Bytes that every memory and stage of a plan that fits may hold more, (memories, stages)."""


class LayerChange(NamedTuple):
    """Strategy for some equal layers, with estimated seconds and bytes added.

    ``stage_bytes``: of each memory and stage, shape (memories, stages).
    """

    layers: tuple[int, ...]
    strategy: LayerStrategy
    seconds: float
    stage_bytes: Floats


class LocalSearch:
    """Local search in a shape from its best plan.

    Args:
        tables: options of every layer of a shape.
        start: best plan of a shape so far.
        free_bytes: free bytes of a feasible plan, by memory and stage.
    """

    def __init__(
        self,
        tables: Callable[[PipelineShape], Sequence[OptionTable]],
        start: Callable[[PipelineShape], Outcome | None],
        free_bytes: FreeBytes,
    ) -> None:
        self._tables = tables
        self._start = start
        self._free_bytes = free_bytes

    def search(self, shape: PipelineShape, attempt: TryDecision) -> None:
        """Try changes of a shape's best plan, if any."""
        start = self._start(shape)
        if start is not None:
            local_search(start, self._tables(shape), attempt, self._free_bytes)


def local_search(
    start: Outcome, tables: Sequence[OptionTable], attempt: TryDecision, free_bytes: FreeBytes
) -> None:
    """Improve a plan by single changes, each from the best so far.

    Args:
        start: a feasible plan.
        tables: options of every layer.
        attempt: simulates a decision, and keeps good plans.
        free_bytes: free bytes of a feasible plan, by memory and stage.
    """
    best: Outcome | None = start
    while best is not None:
        lowest = _single_changes(best, tables, attempt)
        best = None
        for decision in _exchanges(lowest, tables, free_bytes(lowest)):
            outcome = attempt(decision, lowest.step_time_s)
            if _is_faster(outcome, lowest):
                best = outcome
                break


def _single_changes(start: Outcome, tables: Sequence[OptionTable], attempt: TryDecision) -> Outcome:
    best, improves = start, True
    while improves:
        improves = False
        for layers in _interchangeable(best.decision, tables):
            for strategy in _options(tables[layers[0]]):
                outcome = attempt(_changed(best.decision, layers, strategy), best.step_time_s)
                if outcome is not None and _is_faster(outcome, best):
                    best, improves = outcome, True
    return best


def _is_faster(outcome: Outcome | None, best: Outcome) -> bool:
    if outcome is None or not outcome.feasible:
        return False
    return outcome.step_time_s < best.step_time_s * (1 - LEAST_GAIN)


def _exchanges(
    start: Outcome, tables: Sequence[OptionTable], free_bytes: Floats
) -> Iterator[Decision]:
    """Pairs of changes of fitting estimated bytes, best estimates first."""
    changes = list(_changes(start.decision, tables))
    if not changes:
        return
    touched = np.zeros((len(changes), len(tables)), dtype=np.int64)
    for row, change in enumerate(changes):
        touched[row, list(change.layers)] = 1
    seconds = np.array([change.seconds for change in changes])
    grown = np.array([change.stage_bytes for change in changes])
    fits = np.all(grown[:, None] + grown[None, :] <= free_bytes, axis=(2, 3))
    first, second = np.nonzero(np.triu(fits & (touched @ touched.T == 0), 1))
    order = np.argsort(seconds[first] + seconds[second], kind="stable")[:EXCHANGES_TRIED]
    for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True):
        decision = start.decision
        for change in (changes[a], changes[b]):
            decision = _changed(decision, change.layers, change.strategy)
        yield decision


def _changes(decision: Decision, tables: Sequence[OptionTable]) -> Iterator[LayerChange]:
    """Single changes of a decision; two for equal layers free to differ."""
    in_flight = _stages_in_flight(decision)
    for layers in _interchangeable(decision, tables, alone=2):
        table = tables[layers[0]]
        now = table.strategies.index(decision.strategies[layers[0]])
        for row in _rows(table):
            if row == now:
                continue
            added_s = float(table.step_estimate_s[row] - table.step_estimate_s[now])
            bytes_ = np.zeros((1 + len(table.resident_tier_bytes), decision.shape.stages))
            for layer in layers:
                stage, count = in_flight[layer]
                memory = table.memory_at(count)
                bytes_[:, stage] += memory[:, row] - memory[:, now]
            yield LayerChange(layers, table.strategies[row], added_s * len(layers), bytes_)


def _stages_in_flight(decision: Decision) -> list[tuple[int, int]]:
    shape, boundaries = decision.shape, decision.boundaries
    in_flight = [(0, 0)] * boundaries[-1]
    for stage in range(shape.stages):
        for chunk, count in enumerate(shape.first_in_flight(stage)):
            position = shape.position(stage, chunk)
            for layer in range(boundaries[position], boundaries[position + 1]):
                in_flight[layer] = (stage, count)
    return in_flight


def _changed(decision: Decision, layers: Sequence[int], strategy: LayerStrategy) -> Decision:
    strategies = list(decision.strategies)
    for layer in layers:
        strategies[layer] = strategy
    return decision._replace(strategies=tuple(strategies))


def _interchangeable(
    decision: Decision, tables: Sequence[OptionTable], alone: int = 1
) -> Iterator[tuple[int, ...]]:
    """Groups of layers changed together: whole model, chunk, and some alone."""
    equal: dict[tuple[object, ...], list[int]] = {}
    for layer, strategy in enumerate(decision.strategies):
        key = (id(tables[layer]), strategy)
        chunk = bisect_right(decision.boundaries, layer)
        equal.setdefault(key, []).append(layer)
        equal.setdefault((*key, chunk), []).append(layer)
    groups = [tuple(layers) for layers in equal.values()]
    single = [(layer,) for layers in groups for layer in layers[-alone:]]
    yield from dict.fromkeys([*groups, *single])


def _options(table: OptionTable) -> list[LayerStrategy]:
    return [table.strategies[row] for row in _rows(table)]


def _rows(table: OptionTable) -> list[int]:
    rows: list[int] = np.argsort(table.step_estimate_s, kind="stable")[:OPTIONS_TRIED].tolist()
    return rows
