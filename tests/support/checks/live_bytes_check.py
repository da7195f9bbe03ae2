"""Holding traced bytes of real ranks against the simulated peak of their stage."""

from __future__ import annotations

from checks.lowering_check import executor_stack
from generators.family_cases import FamilyCase
from generators.plan_cases import Case
from ranks.rank_pools import RankPool

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.spec.plan.plan import Plan

TOLERANCE = 0.02


def peak_apart(predicted_bytes: float, peak_bytes: float) -> float:
    """How far a prediction is from a traced peak, as a share of the peak."""
    return abs(predicted_bytes / peak_bytes - 1)


def check_live_bytes(
    pool: RankPool,
    case: Case | FamilyCase,
    fused: bool = False,
    plan: Plan | None = None,
    job: str = "ranks.rank_jobs:live_bytes",
) -> None:
    """The least of three steps' traced peaks is the simulated one, on every rank.

    Args:
        pool: real ranks.
        case: whose plan runs, unless ``plan`` is another of its shape.
        fused: with fused kernels.
        plan: what runs in its place.
        job: what runs it.
    """
    plan = case.plan() if plan is None else plan
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), executor_stack(case.flash, fused))
    predicted = [row.allocated_bytes for row in simulator.run(plan).memory]
    steps = 1 if fused else 3
    payload = {"plan": plan.to_document(), "flash": case.flash, "steps": steps, "fused": fused}
    for rank, traced in enumerate(pool.run(job, payload)):
        peak_bytes = min(traced["peak_bytes"])
        assert peak_apart(predicted[traced["stage"]], peak_bytes) <= TOLERANCE, rank
