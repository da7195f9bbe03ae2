"""The same plan in another setting, if legal.

Only the setting's own facts differ: names of device groups, and micro-batches of a batch of
another size. On more or fewer devices of one group the way of splitting stays, and data parallelism
follows; added devices of another kind stay idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.plan.plan import LayerPlan, Plan, Program, Stage
from ...spec.program_values import program_stack_violation
from ...spec.rules.plan_rules import schedule_stack_violation, stack_violation
from .resized_plan import least_devices, resized_programs, resizes
from .setting import Setting


class CannotKeepError(Exception):
    """Rule broken by the plan in the changed setting."""


def same_plan(plan: Plan, setting: Setting, stack: StackSpec) -> Plan:
    """The plan's decisions on the cluster and workload of a setting.

    Raises:
        CannotKeepError: the plan breaks a rule there.
    """
    program = plan.program
    stages = tuple(_renamed(stage, setting.groups) for stage in program.stages)
    moved = replace(
        plan,
        cluster=setting.cluster,
        workloads={**plan.workloads, program.workload: setting.workload},
        programs=(replace(program, stages=stages),),
    )
    was, now = plan.cluster.device_count, setting.cluster.device_count
    if was != now and len(setting.cluster.groups) == 1 and resizes(plan):
        return _resized(moved, (was - idle_devices(plan)) * now // was, stack)
    microbatches = _microbatches(program, setting.workload.global_batch)
    schedule = replace(program.schedule, microbatches=microbatches)
    moved = replace(moved, programs=(replace(moved.program, schedule=schedule),))
    _refuse_illegal(moved, stack)
    return moved


def _resized(plan: Plan, devices: int, stack: StackSpec) -> Plan:
    """The plan with the most data parallelism that is legal on so many devices."""
    batch, least = plan.workload.global_batch, least_devices(plan)
    if devices < least:
        why = f"it splits over at least {least} devices, and there are {plan.cluster.device_count}"
        raise CannotKeepError(why)
    refusals = []
    for program in resized_programs(plan, devices, batch):
        resized = replace(plan, programs=(program,))
        try:
            _refuse_illegal(resized, stack)
        except CannotKeepError as error:
            refusals.append(error)
        else:
            return resized
    if refusals:
        raise refusals[0]
    raise CannotKeepError(f"no degree of data parallelism divides a batch of {batch} samples")


def idle_devices(plan: Plan) -> int:
    """Devices of the cluster in no stage."""
    used = sum(stage.device_count for stage in plan.program.stages)
    return plan.cluster.device_count - used


def _renamed(stage: Stage, names: Mapping[str, str]) -> Stage:
    devices = tuple(
        replace(part, device_group=names.get(part.device_group, part.device_group))
        for part in stage.devices
    )
    chunks = tuple(tuple(_with_groups(p, names) for p in parts) for parts in stage.virtual_stages)
    return replace(stage, devices=devices, virtual_stages=chunks)


def _with_groups(part: LayerPlan, names: Mapping[str, str]) -> LayerPlan:
    strategies = {names.get(name, name): value for name, value in part.by_device_group.items()}
    return replace(part, by_device_group=strategies)


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
    if reason := _too_few_devices(plan):
        raise CannotKeepError(reason)
    if violations := plan.check():
        raise CannotKeepError(violations[0].message)
    reasons = [
        stack_violation(strategy, stack) for strategy in dict.fromkeys(plan.layer_strategies())
    ]
    schedule = plan.program.schedule
    reasons.append(schedule_stack_violation(schedule.kind, stack, schedule.actions is not None))
    reasons.append(program_stack_violation(plan.program.techniques, stack))
    for reason in filter(None, reasons):
        raise CannotKeepError(f"{stack.name} cannot say it: {reason}")


def _too_few_devices(plan: Plan) -> str | None:
    """Violation of a plan with too many devices, if any."""
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
    """Refuse a sequence length illegal for the model.

    Raises:
        InputError: the model cannot take it.
    """
    from ...spec.rules.plan_rules import workload_violation

    reason = workload_violation(setting.model, setting.workload)
    if reason:
        raise InputError(where, setting.workload.seq_len, f"a length the model takes ({reason})")
