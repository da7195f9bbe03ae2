"""Shapes that a failed proof leaves open are looked into, each by itself."""

from __future__ import annotations

from dataclasses import replace

from generators.samples import random_problem
from oracles.brute_force import Restriction
from published.planning import parts_of

from shardwright.planner.candidates.evaluator import Outcome
from shardwright.planner.search.build import SingleGroupParts
from shardwright.planner.search.intensification import free_bytes
from shardwright.planner.search.roles import Nodes
from shardwright.planner.search.work_limits import LOCAL_SEARCH

MOST_DEVICES = 8
NUMBER, CAPACITIES = 414, (1_349_148_505, 2_252_188_596)
"""With more memory one device alone once hid four that share: their likely plans are slower."""
FAR, FAR_CAPACITY = 863, 1_066_455_758
"""Whole micro-batches: the likely plans that fit are 1.3 times as slow as what is known by then."""


Closer = tuple[SingleGroupParts, Nodes, Outcome, Outcome]
"""A search whose proof has failed, its shapes, its best plan before the closer look and after."""


def _looked_closer(capacity: int, number: int = NUMBER) -> Closer:
    parts = parts_of(random_problem(number, MOST_DEVICES).with_memory(capacity))
    nodes = parts.engine.list_shapes()
    parts.likely_shapes.run(nodes)
    before = parts.incumbents.ranked()[0]
    parts.intensification.intensify(nodes)
    return parts, nodes, before, parts.incumbents.ranked()[0]


def test_what_other_shapes_gave_hides_no_better_one() -> None:
    (*_, less), (*_, before, more) = map(_looked_closer, CAPACITIES)
    assert before.decision.shape.devices == 1
    assert more.decision.shape.devices == 4
    assert more.step_time_s < before.step_time_s * 0.96
    assert more.step_time_s <= less.step_time_s


def test_what_is_near_a_slow_likely_plan_is_tried_too() -> None:
    *_, before, after = _looked_closer(FAR_CAPACITY, FAR)
    assert before.decision.shape.microbatches == 2
    assert after.decision.shape.microbatches == 1
    assert after.step_time_s < before.step_time_s * 0.9


def test_shapes_that_are_known_whole_or_cannot_be_best_are_left_alone() -> None:
    parts, nodes, _, best = _looked_closer(CAPACITIES[1])
    parts.enumeration.whole = {
        shape
        for shape, value in zip(nodes.shapes, nodes.quick, strict=True)
        if value < parts.incumbents.best_value
    }
    tried = parts.incumbents.evaluator.tries
    parts.intensification.intensify(nodes)
    assert parts.incumbents.evaluator.tries == tried
    assert parts.incumbents.ranked()[0] == best


def test_a_shape_has_its_quota() -> None:
    parts, _, _, best = _looked_closer(CAPACITIES[1])
    tried = parts.incumbents.evaluator.tries
    parts.intensification.search(best.decision.shape)
    assert parts.incumbents.evaluator.tries - tried <= LOCAL_SEARCH.tries


def test_host_memory_is_no_stage_that_may_hold_more() -> None:
    """Where states go to the host, every stage has two rows of memory; changes add to one."""
    space = random_problem(22, 4)
    (group,) = space.cluster.groups
    memory = replace(group.memory, host_bytes=2**40, hbm_bytes=1_776_011_370)
    cluster = replace(space.cluster, groups=(replace(group, memory=memory),))
    words = Restriction(axis="cpu_offload", allowed=("none", "optimizer", "all"))
    asked = replace(space, cluster=cluster, restrictions=(*space.restrictions, words))
    parts = parts_of(asked)
    nodes = parts.engine.list_shapes()
    parts.likely_shapes.run(nodes)
    parts.intensification.intensify(nodes)
    offloaded = [o for o in parts.incumbents.outcomes.values() if _tiers(o) != {"hbm"}]
    assert {outcome.decision.shape.stages for outcome in offloaded} >= {1, 2}
    for outcome in offloaded:
        free = free_bytes(outcome, parts.incumbents.evaluator)
        assert free.shape == (2, outcome.decision.shape.stages)
        assert (free >= 0).all()


def test_where_nothing_fits_nothing_is_found() -> None:
    parts = parts_of(random_problem(NUMBER, MOST_DEVICES).with_memory(2**28))
    nodes = parts.engine.list_shapes()
    parts.likely_shapes.run(nodes)
    for shape in nodes.shapes[:8]:
        parts.intensification.search(shape)
    assert not parts.incumbents.outcomes


def _tiers(outcome: Outcome) -> set[str]:
    return {row.tier for row in outcome.simulation.memory}
