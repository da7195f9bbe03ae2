"""The same plan in another setting: its decisions as they are, if they can be kept at all.

Only what the setting itself decides differs: the names of device groups, and how many micro-batches
a batch of another size makes. Devices that were added stay idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.plan.plan import LayerPlan, Plan, Program, Stage
from ...spec.rules.plan_rules import schedule_stack_violation, stack_violation
from .setting import Setting


class CannotKeepError(Exception):
    """Why the plan cannot stay as it is, in words."""


def same_plan(plan: Plan, setting: Setting, stack: StackSpec) -> Plan:
    """The plan's decisions on the cluster and workload of a setting.

    Args:
        plan: legal where it comes from.
        setting: what it shall be priced for.
        stack: the software of the setting.

    Raises:
        CannotKeepError: it would break a rule there.
    """
    program = plan.program
    stages = tuple(_renamed(stage, setting.groups) for stage in program.stages)
    microbatches = _microbatches(program, setting.workload.global_batch)
    schedule = replace(program.schedule, microbatches=microbatches)
    found = replace(
        plan,
        cluster=setting.cluster,
        workloads={**plan.workloads, program.workload: setting.workload},
        programs=(replace(program, stages=stages, schedule=schedule),),
    )
    _refuse_illegal(found, stack)
    return found


def idle_devices(plan: Plan) -> int:
    """Devices of the cluster in no stage."""
    used = sum(stage.device_count for stage in plan.program.stages)
    return plan.cluster.device_count - used


def _renamed(stage: Stage, names: Mapping[str, str]) -> Stage:
    devices = tuple(
        replace(part, device_group=names.get(part.device_group, part.device_group))
        for part in stage.devices
    )
    chunks = tuple(tuple(_of_groups(p, names) for p in parts) for parts in stage.virtual_stages)
    return replace(stage, devices=devices, virtual_stages=chunks)


def _of_groups(part: LayerPlan, names: Mapping[str, str]) -> LayerPlan:
    own = {names.get(name, name): strategy for name, strategy in part.by_device_group.items()}
    return replace(part, by_device_group=own)


def _microbatches(program: Program, global_batch: int) -> int:
    samples = program.micro_batch_samples
    if global_batch % samples:
        low = global_batch // samples * samples
        near = f"{low} or {low + samples}" if low else f"{samples}"
        raise CannotKeepError(
            f"a micro-batch is {samples} samples over all replicas, which do not divide a batch "
            f"of {global_batch} (nearest: {near})"
        )
    return global_batch // samples


def _refuse_illegal(plan: Plan, stack: StackSpec) -> None:
    needed = _devices_needed(plan)
    if needed is not None:
        raise CannotKeepError(needed)
    if violations := plan.check():
        raise CannotKeepError(violations[0].message)
    reasons = [
        stack_violation(strategy, stack) for strategy in dict.fromkeys(plan.layer_strategies())
    ]
    schedule = plan.program.schedule
    reasons.append(schedule_stack_violation(schedule.kind, stack, schedule.actions is not None))
    for reason in filter(None, reasons):
        raise CannotKeepError(f"{stack.name} cannot say it: {reason}")


def _devices_needed(plan: Plan) -> str | None:
    """That the plan is of more devices than there are, where it is."""
    for group in plan.cluster.groups:
        ends = [
            part.first_rank + part.count
            for stage in plan.program.stages
            for part in stage.devices
            if part.device_group == group.name
        ]
        if ends and max(ends) > group.device_count:
            what = "devices" if len(plan.cluster.groups) == 1 else f"devices of {group.name}"
            return f"it is of {max(ends)} {what}, and there are {group.device_count}"
    return None


def check_setting(setting: Setting, where: str) -> None:
    """Refuse a sequence length that the model cannot take, whatever the plan.

    Raises:
        InputError: one.
    """
    from ...spec.rules.plan_rules import workload_violation

    reason = workload_violation(setting.model, setting.workload)
    if reason:
        raise InputError(where, setting.workload.seq_len, f"a length the model takes ({reason})")
