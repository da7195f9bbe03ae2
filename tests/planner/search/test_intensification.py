"""Shapes that a failed proof leaves open are looked into, each by itself."""

from __future__ import annotations

from dataclasses import replace

from generators.samples import random_problem
from published.planning import search_of

from shardwright.planner.candidates.evaluator import Outcome
from shardwright.planner.search.branch_and_bound import BranchAndBound

MOST_DEVICES = 8
NUMBER, CAPACITIES = 414, (1_349_148_505, 2_252_188_596)
"""With more memory one device alone once hid four that share: their likely plans are slower."""
FAR, FAR_CAPACITY = 863, 1_066_455_758
"""Whole micro-batches: the likely plans that fit are 1.3 times as slow as what is known by then."""


def _looked_closer(capacity: int, number: int = NUMBER) -> tuple[BranchAndBound, Outcome, Outcome]:
    """A search whose proof has failed, its best plan before the closer look, and after it."""
    search = search_of(random_problem(number, MOST_DEVICES).with_memory(capacity))
    search._build_queue()
    search._search_layouts()
    before = min(search._outcomes.values(), key=search.rank)
    search._intensify()
    return search, before, min(search._outcomes.values(), key=search.rank)


def test_what_other_shapes_gave_hides_no_better_one() -> None:
    (_, _, less), (_, before, more) = map(_looked_closer, CAPACITIES)
    assert before.decision.shape.devices == 1
    assert more.decision.shape.devices == 4
    assert more.step_time_s < before.step_time_s * 0.96
    assert more.step_time_s <= less.step_time_s


def test_what_is_near_a_slow_likely_plan_is_tried_too() -> None:
    _, before, after = _looked_closer(FAR_CAPACITY, FAR)
    assert before.decision.shape.microbatches == 2
    assert after.decision.shape.microbatches == 1
    assert after.step_time_s < before.step_time_s * 0.9


def test_shapes_that_are_known_whole_or_cannot_be_best_are_left_alone() -> None:
    search, _, best = _looked_closer(CAPACITIES[1])
    search._whole = {
        shape for shape in search._shapes if search._quick_value(shape) < search._incumbent_value
    }
    tried = search.evaluator.tries
    search._intensify()
    assert search.evaluator.tries == tried
    assert min(search._outcomes.values(), key=search.rank) == best


def test_a_shape_has_its_quota() -> None:
    search, _, best = _looked_closer(CAPACITIES[1])
    tried = search.evaluator.tries
    search._intensify_shape(best.decision.shape)
    assert search.evaluator.tries - tried <= search.limits.local_search.tries


def test_host_memory_is_no_stage_that_may_hold_more() -> None:
    """Where states go to the host, every stage has two rows of memory; changes add to one."""
    space = random_problem(22, 4)
    (group,) = space.cluster.groups
    memory = replace(group.memory, host_bytes=2**40, hbm_bytes=1_776_011_370)
    cluster = replace(space.cluster, groups=(replace(group, memory=memory),))
    search = search_of(replace(space, cluster=cluster))
    search._build_queue()
    search._search_layouts()
    search._intensify()
    offloaded = [o for o in search._outcomes.values() if _tiers(o) != {"hbm"}]
    assert {outcome.decision.shape.stages for outcome in offloaded} >= {1, 2}
    for outcome in offloaded:
        assert len(search._free_bytes(outcome)) == outcome.decision.shape.stages


def test_where_nothing_fits_nothing_is_found() -> None:
    search = search_of(random_problem(NUMBER, MOST_DEVICES).with_memory(2**28))
    search._build_queue()
    search._search_layouts()
    for shape in search._shapes[:8]:
        search._intensify_shape(shape)
    assert not search._outcomes


def _tiers(outcome: Outcome) -> set[str]:
    return {row.tier for row in outcome.simulation.memory}
