"""Quick plans of models with experts: techniques priced at every place are left to the best one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.bounds.shape_values import ShapeValues
from shardwright.planner.candidates.evaluator import Evaluator
from shardwright.planner.search.build import shape_bounds
from shardwright.planner.solve.engine import make_evaluator
from shardwright.planner.space.search_space import SearchSpace
from shardwright.planner.uniform.quick_plan import quick_plan, with_values
from shardwright.planner.uniform.textbook import TextbookPlans

EXPERTS = {
    "name": "few-experts", "layers": 2, "hidden": 4096, "heads": 32, "vocab": 32000, "ffn": 14336,
    "experts": 8, "topk": 2, "expert_ffn": 14336,
}  # fmt: skip


def evaluator(model: object, **others: object) -> Evaluator:
    inputs = Inputs(model=model, cluster="8xH100-80GB", global_batch=8, seq_len=1024, **others)
    return make_evaluator(resolve(inputs))


def test_a_plan_is_as_fast_as_without_the_techniques_and_the_bound_holds() -> None:
    ours = evaluator(EXPERTS)
    found = quick_plan(ours)
    assert found.outcome is not None
    lean = replace(ours.request, techniques=ours.request.techniques.without_priced_places())
    plain = Evaluator(lean, ours.simulator, ours.rule)
    bounds = shape_bounds(plain)
    outcomes = TextbookPlans(bounds, plain).outcomes(list(bounds.tables.space.shapes()))
    assert found.outcome.step_time_s <= min(one.step_time_s for one in outcomes)
    full = shape_bounds(ours)
    values = ShapeValues(full, ours)
    least_s = min(values.quick(shape) for shape in full.tables.space.shapes())
    assert 0 < found.bound_s <= least_s


def test_the_best_plan_is_tried_with_the_values_of_its_places() -> None:
    ours = evaluator(EXPERTS)
    outcome = quick_plan(ours).outcome
    assert outcome is not None
    space = SearchSpace(ours.request, ours.simulator)
    variants = list(with_values(outcome, space))
    assert variants
    for decision in variants:
        pairs = list(zip(decision.strategies, outcome.decision.strategies, strict=True))
        assert any(one.techniques for one, _ in pairs)
        assert all(replace(one, techniques=other.techniques) == other for one, other in pairs)
        tried = ours(decision)
        assert tried is not None
        assert tried.step_time_s >= outcome.step_time_s


def test_without_such_techniques_the_bound_is_that_of_shapes() -> None:
    ours = evaluator("gpt2")
    found, bounds = quick_plan(ours), shape_bounds(ours)
    values = ShapeValues(bounds, ours)
    shapes = bounds.tables.space.shapes()
    assert found.bound_s == pytest.approx(min(values.quick(shape) for shape in shapes), rel=0)
