"""Verified runs of plans on a pool of ranks, held to the norm of executor.verify."""

from __future__ import annotations

from typing import Any

from generators.family_cases import FamilyCase
from generators.plan_cases import Case
from ranks.rank_pools import RankPool

from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.executor.reference.verify import bounds_of
from shardwright.spec.plan.plan import Plan

STEPS = 3


def run_verified(
    pool: RankPool, plan: Plan, job: str = TRAIN_JOB, **settings: Any
) -> dict[str, Any]:
    """Rank 0's result of three steps beside a single process; ``settings`` are the run's."""
    payload = {
        "plan": plan.to_document(),
        "steps": STEPS,
        "verify": True,
        "random_tokens": True,
        "follow_bytes": False,
        **settings,
    }
    result: dict[str, Any] = pool.run(job, payload)[0]
    return result


def check_run(pool: RankPool, plan: Plan, job: str = TRAIN_JOB, **settings: Any) -> dict[str, Any]:
    """As :func:`run_verified`; losses and gradients are the single process's."""
    result = run_verified(pool, plan, job, **settings)
    found, bounds = result["verify"], bounds_of(plan)
    assert len(result["measured"]["losses"]) == settings.get("steps", STEPS)
    assert found["max_rel_grad_diff"] <= bounds.gradient, found["worst_tensor"]
    assert found["max_rel_loss_diff"] <= bounds.loss
    return result


def check_case(
    pool: RankPool, case: Case | FamilyCase, job: str = TRAIN_JOB, plan: Plan | None = None
) -> dict[str, Any]:
    """As :func:`check_run`, of a case's plan or another of its kind, with the case's attention."""
    plan = case.plan() if plan is None else plan
    return check_run(pool, plan, job, attention="flash" if case.flash else "unfused")
