"""Plans near a good one: descent ends where no change of one layer, or of all alike, is faster."""

from __future__ import annotations

import numpy as np
from generators.samples import random_problem
from published.planning import parts_of

from shardwright.planner.candidates.evaluator import Decision, Outcome
from shardwright.planner.heuristics.local_search import OPTIONS_TRIED, _single_changes, local_search
from shardwright.planner.search.build import SingleGroupParts
from shardwright.planner.search.intensification import free_bytes
from shardwright.planner.tables.option_table import OptionTable

NUMBER, PLENTY_BYTES = 254, 2**40
SCARCE, SCARCE_BYTES = (11, 8), 3_939_625_269
EQUAL = 1e-9


def _start() -> tuple[SingleGroupParts, list[OptionTable], Outcome]:
    """A search of six layers on two devices, and its slowest plan by estimates."""
    parts = parts_of(random_problem(NUMBER, 8).with_memory(PLENTY_BYTES))
    shapes = parts.bounds.tables.space.shapes()
    shape = next(s for s in shapes if (s.stages, s.ranks, s.microbatches) == (1, 2, 8))
    tables = parts.bounds.tables.layers(shape)
    slowest = tuple(t.strategies[int(np.argmax(t.step_estimate_s))] for t in tables)
    outcome = parts.incumbents.evaluator(Decision(shape, (0, len(tables)), slowest))
    assert outcome is not None
    return parts, tables, outcome


def _descended(most: int) -> tuple[Outcome, int, SingleGroupParts, list[OptionTable]]:
    """The best plan that was met, and how many were tried."""
    parts, tables, start = _start()
    evaluator = parts.incumbents.evaluator
    met, tries = [start], [0]

    def attempt(decision: Decision, cutoff_s: float) -> Outcome | None:
        tries[0] += 1
        found = evaluator(decision, cutoff_s) if tries[0] <= most else None
        met.extend([] if found is None else [found])
        return found

    local_search(start, tables, attempt, lambda plan: free_bytes(plan, evaluator))
    return min(met, key=lambda o: o.step_time_s), tries[0], parts, tables


def test_no_change_of_one_layer_is_faster_where_it_ends() -> None:
    best, _, parts, tables = _descended(10**6)
    assert best.step_time_s < _start()[2].step_time_s
    compared = 0
    for layer, table in enumerate(tables):
        for row in np.argsort(table.step_estimate_s, kind="stable")[:OPTIONS_TRIED].tolist():
            strategies = list(best.decision.strategies)
            strategies[layer] = table.strategies[row]
            found = parts.incumbents.evaluator(best.decision._replace(strategies=tuple(strategies)))
            if found is not None:
                assert found.step_time_s >= best.step_time_s * (1 - EQUAL)
                compared += 1
    assert compared > 50


def test_two_changes_at_once_are_tried_where_memory_binds() -> None:
    """What one layer must give up for another's gain: singly the first only costs time."""
    parts = parts_of(random_problem(*SCARCE).with_memory(SCARCE_BYTES))
    parts.likely_shapes.run(parts.engine.list_shapes())
    start, evaluator = parts.incumbents.ranked()[0], parts.incumbents.evaluator
    tables = parts.bounds.tables.layers(start.decision.shape)
    lowest = _single_changes(start, tables, evaluator)
    met = [lowest]

    def attempt(decision: Decision, cutoff_s: float) -> Outcome | None:
        found = evaluator(decision, cutoff_s)
        met.extend([found] if found is not None and found.feasible else [])
        return found

    local_search(lowest, tables, attempt, lambda plan: free_bytes(plan, evaluator))
    best = min(met, key=lambda o: o.step_time_s)
    assert best.step_time_s < lowest.step_time_s * 0.8


def test_it_ends_where_no_more_may_be_tried() -> None:
    few, tries, *_ = _descended(3)
    assert tries < 10**4
    assert few.step_time_s <= _start()[2].step_time_s
