"""Every plan of a stack that runs one strategy, against the planner's answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from oracles.brute_force import Space, every_strategy, has_usual_etp, simulator_of
from published.planning import RULE, request_of

from shardwright.planner.candidates.evaluator import Decision, Evaluator, build_plan
from shardwright.planner.search.work_limits import Limits
from shardwright.planner.space.pipeline_shape import PipelineShape
from shardwright.planner.uniform.build import UniformParts
from shardwright.spec.errors import InfeasibleError
from shardwright.spec.model.model_spec import BlockLayer
from shardwright.spec.numbers import divisors
from shardwright.spec.plan.layer_cuts import cuts
from shardwright.spec.plan.plan import Plan
from shardwright.spec.plan.uniform_strategy import applicable_strategy
from shardwright.spec.rules.stack_limits import stack_plan_violations
from shardwright.spec.strategy import LayerStrategy


def _strategies(width: int) -> Iterator[LayerStrategy]:
    """Every strategy that is searched unpinned, results kept by name among them."""
    for strategy in filter(has_usual_etp, every_strategy(width)):
        yield strategy
        if strategy.recompute == "selective":
            yield replace(strategy, recompute="selective-ops")


def every_plan(space: Space) -> Iterator[Plan]:
    """Every searched uniform plan that is legal and that the stack runs, whatever its memory."""
    request, layers = request_of(space), space.model.layers()
    is_block = [isinstance(layer, BlockLayer) for layer in layers]
    batch, devices = space.workload.global_batch, space.cluster.device_count
    for width, kind in itertools.product(range(1, devices + 1), space.stack.schedules):
        for stages, chunks in itertools.product(
            range(1, devices // width + 1), range(1, len(layers) + 1)
        ):
            for boundaries in cuts(space.stack.limits.layer_cut, is_block, kind, stages, chunks):
                for count, strategy in itertools.product(divisors(batch), _strategies(width)):
                    if strategy.cp > 1 or strategy.ulysses:  # sequences here are short
                        continue
                    taken = tuple(applicable_strategy(layer, strategy) for layer in layers)
                    samples, dp = batch // count, strategy.data_parallel(width)
                    if samples % dp:
                        continue
                    shape = PipelineShape(stages, width, kind, chunks, count)
                    plan = build_plan(request, Decision(shape, boundaries, taken))
                    if not plan.check() and not stack_plan_violations(plan, space.stack):
                        yield plan


def check_best_plans(space: Space, least: int = 20) -> int:
    """Hold the planner's answers, with much and with little memory, against every plan.

    Args:
        space: the plans.
        least: more of them are expected.

    Returns:
        How many plans the space has.
    """
    simulator = simulator_of(space)
    steps: list[tuple[float, float]] = []
    for plan in every_plan(space):
        simulation = simulator.run(plan)
        assert simulation is not None
        reserved = max(row.reserved_bytes for row in simulation.memory)
        steps.append((simulation.step_time_s, reserved * RULE.margin))
    assert len(steps) > least
    sizes = sorted(reserved for _, reserved in steps)
    for capacity in (int(sizes[-1] * 2), int(sizes[len(sizes) // 4]) + 1):
        asked = space.with_memory(capacity)
        evaluator = Evaluator(request_of(asked), simulator_of(asked), RULE)
        best_s = min((s for s, reserved in steps if reserved <= capacity), default=float("inf"))
        try:
            result = UniformParts(evaluator, Limits()).engine.run()
        except InfeasibleError:
            assert best_s == float("inf")
            continue
        best = result.outcomes[0]
        assert stack_plan_violations(best.plan, asked.stack) == []
        assert best.step_time_s == pytest.approx(best_s, rel=1e-9)
        assert result.stopped_by == "proof"
        assert result.lower_bound_s <= best_s * (1 + 1e-12)
    return len(steps)
