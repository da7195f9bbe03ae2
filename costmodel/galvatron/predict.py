"""A report's prediction of a plan under Galvatron's costs."""

from __future__ import annotations

from ...datasets.catalogue.device import device
from ...spec.model.model_spec import BlockLayer
from ...spec.plan.plan import Plan
from ...spec.report.report import MemoryRow, Prediction
from ..kernel_latency.roofline import peak_flops_per_s
from ..lowering.model_flops import (
    flops_convention,
    forward_flops,
    masked_flops_per_sample,
    model_flops_per_sample,
)
from .breakdown import breakdown, stage_bytes
from .job import MB, GalvatronJob, usable_mb
from .plan_cost import GalvatronCost, GalvatronPlan

HALF_WIDTH = 0.25
"""Half of the 80 % interval over the step time, as for unmeasured prices."""


def predict(
    job: GalvatronJob,
    galvatron_plan: GalvatronPlan,
    cost: GalvatronCost,
    plan: Plan,
    budget_mb: int,
) -> Prediction:
    """Time, throughput and memory of a step.

    ``plan`` holds the decisions of ``galvatron_plan``; ``budget_mb``: MB of a device, part of it
    perhaps withheld.
    """
    workload, step_s = plan.workload, cost.step_s
    flops = model_flops_per_sample(plan.model, workload) * workload.global_batch
    masked = masked_flops_per_sample(plan.model, workload) * workload.global_batch
    recomputed = _recomputed_flops(plan, galvatron_plan) * workload.global_batch
    rate = peak_flops_per_s(device(plan.cluster.groups[0].device), workload.dtype.param)
    peak = job.devices * rate
    return Prediction(
        feasible=max(cost.used_bytes) <= usable_mb(budget_mb) * MB,
        step_time_s=step_s,
        step_time_interval_s=(step_s * (1 - HALF_WIDTH), step_s * (1 + HALF_WIDTH)),
        samples_per_s=workload.global_batch / step_s,
        tokens_per_s=workload.tokens_per_step / step_s,
        tokens_per_s_per_device=workload.tokens_per_step / step_s / job.devices,
        flops_per_s_per_device=flops / step_s / job.devices,
        mfu=flops / step_s / peak,
        mfu_causal=(flops - masked) / step_s / peak,
        hfu=(flops + recomputed) / step_s / peak,
        memory=_memory(job, galvatron_plan, cost, plan, budget_mb),
        breakdown_s=breakdown(job, galvatron_plan, cost),
        flops_convention=flops_convention(workload),
    )


def _recomputed_flops(plan: Plan, galvatron_plan: GalvatronPlan) -> int:
    forward = zip(plan.model.layers(), forward_flops(plan.model, plan.workload), strict=True)
    blocks = [flops for layer, flops in forward if isinstance(layer, BlockLayer)]
    return sum(f for f, s in zip(blocks, galvatron_plan.layers, strict=True) if s.recompute)


def _memory(
    job: GalvatronJob,
    galvatron_plan: GalvatronPlan,
    cost: GalvatronCost,
    plan: Plan,
    budget_mb: int,
) -> tuple[MemoryRow, ...]:
    withheld = budget_mb - usable_mb(budget_mb)
    return tuple(
        MemoryRow(
            program=plan.program.name,
            stage=stage,
            device_group=plan.cluster.groups[0].name,
            allocated_bytes=stage_memory.used_bytes,
            reserved_bytes=stage_memory.reserved_bytes,
            capacity_bytes=budget_mb * MB,
            by=stage_memory.by,
        )
        for stage, stage_memory in enumerate(stage_bytes(job, galvatron_plan, cost, withheld))
    )
