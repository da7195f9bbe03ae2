"""Plans to measure: the planner's choice, and plans of every speed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from shardwright.planner.candidates.evaluator import Decision
from shardwright.planner.solve.engine import make_evaluator
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solve import solve
from shardwright.planner.space.search_space import PipelineShape, SearchSpace
from shardwright.spec.plan.plan import Plan

RANDOM_PLANS = 300
TOP = "top pick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A plan with its predictions, memory by stage."""

    label: str
    plan: Plan
    step_time_s: float
    allocated_bytes: tuple[int, ...]


def predicted_plans(problem: Problem, count: int, seed: int) -> list[Predicted]:
    """The planner's choice, then ``count`` plans at quantiles of predicted time.

    The quantiles are one drawn in each of ``count`` equal parts, of random legal plans that fit
    and use every device.
    """
    source = random.Random(f"accuracy {seed}")
    solution = solve(problem, SolveOptions(executable=True))
    rows = solution.prediction.memory
    top = Predicted(
        label=TOP,
        plan=solution.plan,
        step_time_s=solution.prediction.step_time_s,
        allocated_bytes=tuple(row.allocated_bytes for row in rows),
    )
    drawn = _random_plans(problem, source)
    quantiles = [(part + source.random()) / count for part in range(count)]
    return [top, *(_at(drawn, quantile) for quantile in quantiles)]


def _at(drawn: list[Predicted], quantile: float) -> Predicted:
    chosen = drawn[min(len(drawn) - 1, int(quantile * len(drawn)))]
    return Predicted(
        label=f"quantile {quantile:.2f}",
        plan=chosen.plan,
        step_time_s=chosen.step_time_s,
        allocated_bytes=chosen.allocated_bytes,
    )


def _random_plans(problem: Problem, source: random.Random) -> list[Predicted]:
    """Random plans that fit, fastest first."""
    evaluate = make_evaluator(problem, SolveOptions(executable=True))
    space = SearchSpace(evaluate.request)
    every = [s for s in space.shapes() if s.stages * s.ranks == space.device_count]
    outcomes = {}
    for _ in range(RANDOM_PLANS):
        decision = _draw(space, source.choice(every), source)
        outcome = evaluate(decision)
        if outcome is not None and outcome.feasible:
            outcomes[decision] = outcome
    plans = [
        Predicted(
            label="",
            plan=o.plan,
            step_time_s=o.step_time_s,
            allocated_bytes=tuple(row.allocated_bytes for row in o.simulation.memory),
        )
        for o in outcomes.values()
    ]
    return sorted(plans, key=lambda p: (p.step_time_s, p.plan.hash))


def _draw(space: SearchSpace, shape: PipelineShape, source: random.Random) -> Decision:
    """Draw a plan; half have nearly equal layers, half independent ones."""
    samples = space.request.workload.global_batch // shape.microbatches
    tables = [space.options(kind, shape.ranks, samples) for kind in space.layer_classes]
    if space.request.model.tie_embeddings:  # their weight is one, so its strategy is too
        tables[0] = tuple(s for s in tables[0] if s in tables[-1])
    inner = source.sample(range(1, len(tables)), shape.positions - 1)
    boundaries = (0, *sorted(inner), len(tables))
    main = source.choice(tables[len(tables) // 2])
    alike = source.random() < 0.5
    strategies = []
    for options in tables:
        near = [s for s in options if (s.tp, s.shard) == (main.tp, main.shard)]
        if alike and main in options:
            strategies.append(main)
        else:
            strategies.append(source.choice((near if alike else None) or options))
    if space.request.model.tie_embeddings:
        strategies[-1] = strategies[0]
    return Decision(shape, boundaries, tuple(strategies))


def in_words(plan: Plan) -> str:
    """A plan in a few words, for tables."""
    program = plan.program
    schedule = program.schedule
    parts = [f"{len(program.stages)} x {program.stages[0].device_count} ranks"]
    if len(program.stages) > 1:
        chunks = len(program.stages[0].virtual_stages)
        parts.append(schedule.kind + (f" {chunks}" if chunks > 1 else ""))
    parts.append(f"{schedule.microbatches} x {schedule.micro_batch}")
    strategies = plan.layer_strategies()
    widths = program.stages[0].device_count
    names = dict.fromkeys(
        f"tp {s.tp}{' sp' if s.megatron_sp else ''} "
        f"{s.shard.level_name(s.data_parallel(widths))} {s.recompute}"
        for s in strategies
    )
    parts.append("; ".join(names) if len(names) <= 3 else f"{len(names)} strategies")
    return ", ".join(parts)
