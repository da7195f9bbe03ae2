"""Parity and lowering of one plan on a pool of ranks."""

from __future__ import annotations

from family_cases import FamilyCase
from lowering_check import compare, executor_stack
from rank_pools import RankPool

from shardwright.costmodel.machine import Machine
from shardwright.costmodel.simulate import Simulator
from shardwright.executor.launch import TRAIN_JOB
from shardwright.executor.verify import BOUNDS

STEPS = 3
MIN_BYTES_SHARE = 0.99
BYTES_TOLERANCE = 0.02


def check_parity(pool: RankPool, case: FamilyCase, job: str = TRAIN_JOB) -> None:
    """Three verified steps stay within the norm of executor.verify."""
    payload = {
        "plan": case.plan().to_document(),
        "steps": STEPS,
        "verify": True,
        "random_tokens": True,
        "follow_bytes": False,
        "attention": "flash" if case.flash else "unfused",
    }
    result = pool.run(job, payload)[0]
    found, bounds = result["verify"], BOUNDS[case.dtype]
    assert len(result["measured"]["losses"]) == STEPS
    assert found["max_rel_grad_diff"] <= bounds.gradient, found["worst_tensor"]
    assert found["max_rel_loss_diff"] <= bounds.loss


def check_lowering(pool: RankPool, case: FamilyCase) -> None:
    """A recorded step has the kernels, collectives and bytes that the lowering names."""
    plan = case.plan()
    payload = {"plan": plan.to_document(), "flash": case.flash}
    for rank, record in enumerate(pool.run("rank_jobs:record", payload)):
        found = compare(case, plan, record)
        assert found.kernels_apart == {}, (rank, found.kernels_apart)
        assert found.collectives_apart == {}, (rank, found.collectives_apart)
        assert found.recorded_flops == found.lowered_flops, rank
        assert found.matched_bytes >= MIN_BYTES_SHARE * found.recorded_bytes, rank
        assert found.lowered_bytes <= found.recorded_bytes / MIN_BYTES_SHARE, rank


def check_live_bytes(pool: RankPool, case: FamilyCase) -> None:
    """The traced peak of live bytes of each rank is that of the simulator, to 2 %."""
    plan = case.plan()
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), executor_stack(case.flash))
    predicted = [row.allocated_bytes for row in simulator.run(plan).memory]
    payload = {"plan": plan.to_document(), "flash": case.flash, "steps": 3}
    for rank, traced in enumerate(pool.run("rank_jobs:live_bytes", payload)):
        off = min(traced["peak_bytes"]) / predicted[traced["stage"]] - 1
        assert abs(off) <= BYTES_TOLERANCE, (rank, off)
