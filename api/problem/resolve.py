"""Resolution of typed inputs to a Problem; omissions become assumptions.

Command line, service and Python share these rules, so a default is decided in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...costmodel.pricing.machine import Machine
from ...datasets.catalogue.device import CPU, Device, device
from ...datasets.clusters.parsed_cluster import ParsedCluster
from ...datasets.models.load import DEFAULT_MODEL
from ...planner.solve.problem import ObjectiveChoice, Problem
from ...planner.techniques import SHIPPED
from ...profiler.store.profiles import stored_profiles
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError, one_of
from ...spec.model.model_spec import ModelSpec
from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import table_blocks
from ...spec.program_values import program_stack_violation
from ...spec.report.report import Assumption
from ...spec.rules.input_rules import base_violation
from ...spec.rules.plan_rules import schedule_stack_violation, stack_violation, workload_violation
from ...spec.workload.number_formats import STATE_ROLES
from ...spec.workload.workload import TASKS, DtypeRecord, Workload, state_formats
from .adapters import adapters_note
from .arguments import check_types
from .expert_load import LoadLike, expert_load_of
from .lossy import allow_lossy
from .memory_limits import limit_memory
from .model_and_cluster import ClusterLike, ModelLike, cluster_of, model_of
from .objective import objective_of
from .price_file import PRICES_FLAG as PRICES
from .price_file import PricesLike, price_notes, prices_of
from .profile_notes import device_notes, profile_notes
from .stack import stack_of
from .stored_calibrations import calibration_for
from .workload import dtype_of, gradient_notes, optimizer_of, trainable_of
from .workload_size import (
    DEFAULT_SEQ_LEN,
    USUAL_SEQ_LEN,
    LengthsLike,
    batch_of,
    ignored_size_notes,
    length_error,
    lengths_of,
    require_sizes,
    size_or_default,
    with_initial_size,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Typed inputs; None where omitted.

    Python and the service also pass objects.
    """

    model: ModelLike | None = None
    cluster: ClusterLike | None = None
    global_batch: int | None = None
    global_batch_tokens: int | None = None
    seq_len: int | None = None
    dtype: str | None = None
    grad_dtype: str | None = None
    communication_dtype: str | None = None
    master_dtype: str | None = None
    moment_dtype: str | None = None
    optimizer: str | None = None
    trainable: str | None = None
    expert_load: LoadLike | None = None
    lengths: LengthsLike | None = None
    task: str | None = None
    memory_gib: float | None = None
    host_gib: float | None = None
    nvme_gib: float | None = None
    stack: str | None = None
    attention: str | None = None
    overlap: str | None = None
    calibration: str | None = None
    objective: str | None = None
    prices: PricesLike | None = None
    allow: str | None = None


def resolve(inputs: Inputs) -> Problem:
    """The problem of typed inputs.

    Raises:
        InputError: a value that is not allowed, or a missing batch or sequence length.
        NotBuiltError: a contract value that this version does not support.
    """
    check_types(inputs)
    notes: list[Assumption] = []
    objective_choice = objective_of(inputs.objective)
    notes += ignored_size_notes(inputs, objective_choice)
    bare = inputs.model is None and inputs.cluster is None
    parsed = _cluster(inputs, notes)
    model, model_notes = model_of(DEFAULT_MODEL if inputs.model is None else inputs.model)
    if inputs.model is None:
        notes.append(_note("model", DEFAULT_MODEL, "not given; the embedded default"))
    notes += model_notes
    cluster = limit_memory(parsed.cluster, inputs.memory_gib, inputs.host_gib, inputs.nvme_gib)
    prices = prices_of(inputs.prices, cluster)
    notes += price_notes(prices, cluster)
    if objective_choice.objective == "cost" and prices is None:
        raise InputError(PRICES, "nothing", "a file of prices, for --objective cost", "prices.yaml")
    weakest = _weakest_device(cluster)
    kinds = [device(g.device) for g in cluster.groups]
    dtype = dtype_of(inputs.dtype, weakest, kinds, notes, _state_words(inputs))
    inputs = with_initial_size(inputs, model, objective_choice)
    if not bare:
        require_sizes(inputs, model, cluster.device_count)
    workload = _workload(inputs, model, dtype, objective_choice, notes)
    if reason := base_violation(workload):
        raise InputError("--trainable", inputs.trainable, f"formats that go together: {reason}")
    if reason := workload_violation(model, workload):
        raise length_error(model, workload, reason)
    biased = bool(table_blocks(model))
    stack = stack_of(*_stack_flags(inputs), weakest, dtype.param, notes, biased)
    notes += gradient_notes(workload.dtype, stack)
    measured = _calibration_or_profile(inputs, weakest, cluster, stack, dtype, notes)
    return Problem(
        model=model,
        cluster=cluster,
        workload=workload,
        stack=stack,
        measured=measured,
        assumptions=tuple(notes),
        expansion=parsed.expansion,
        machine=Machine(cluster, measured),
        objective_choice=objective_choice,
        prices=prices,
        techniques=allow_lossy(SHIPPED, inputs.allow),
    )


def plan_pricing(
    plan: Plan, inputs: Inputs
) -> tuple[StackSpec, Measured | None, tuple[Assumption, ...]]:
    """Stack, measurements and assumptions that price a legal plan.

    Of ``inputs`` stack, attention, overlap and calibration are read.

    Raises:
        InputError: an unknown stack, or one that cannot express the plan.
    """
    biased = bool(table_blocks(plan.model))
    stack, measured, notes = pricing_on(plan.cluster, plan.workload.dtype, inputs, biased)
    reasons = [
        stack_violation(strategy, stack) for strategy in dict.fromkeys(plan.layer_strategies())
    ]
    schedule = plan.program.schedule
    reasons.append(schedule_stack_violation(schedule.kind, stack, schedule.actions is not None))
    reasons.append(program_stack_violation(plan.program.techniques, stack))
    for reason in filter(None, reasons):
        raise InputError("--stack", stack.name, f"one that can say the plan ({reason})")
    return stack, measured, notes


def pricing_on(
    cluster: ClusterSpec, dtype: DtypeRecord, inputs: Inputs, biased: bool = False
) -> tuple[StackSpec, Measured | None, tuple[Assumption, ...]]:
    """Stack, measurements and assumptions that price any plan on a cluster.

    ``biased``: the model learns biases of attention scores.

    Raises:
        InputError: an unknown stack, or a calibration for something else.
    """
    check_types(inputs)
    notes: list[Assumption] = []
    weakest = _weakest_device(cluster)
    stack = stack_of(*_stack_flags(inputs), weakest, dtype.param, notes, biased)
    measured = _calibration_or_profile(inputs, weakest, cluster, stack, dtype, notes)
    return stack, measured, tuple(notes)


def _weakest_device(cluster: ClusterSpec) -> Device:
    devices = [device(group.device) for group in cluster.groups]
    return min(devices, key=lambda item: (item.flash_attention, "bf16" in item.dtypes))


def _stack_flags(inputs: Inputs) -> tuple[str | None, str | None, str | None]:
    return inputs.stack, inputs.attention, inputs.overlap


def _note(path: str, value: Any, why: str) -> Assumption:
    return Assumption(path=path, value=value, why=why)


def _cluster(inputs: Inputs, notes: list[Assumption]) -> ParsedCluster:
    parsed = cluster_of("local" if inputs.cluster is None else inputs.cluster)
    notes += parsed.assumptions
    if inputs.cluster is None:
        notes.append(_note("cluster", parsed.expansion, "not given; this machine"))
    return parsed


def _workload(
    inputs: Inputs,
    model: ModelSpec,
    dtype: DtypeRecord,
    objective_choice: ObjectiveChoice,
    notes: list[Assumption],
) -> Workload:
    alone = inputs.seq_len is None and len(model.towers) == 1  # else there is text beside it
    seq_len = model.towers[0].seq_len if alone else None
    if seq_len is None:
        sizes = (inputs.seq_len, DEFAULT_SEQ_LEN, USUAL_SEQ_LEN)
        seq_len = size_or_default("--seq-len", *sizes, notes)
    else:
        notes.append(_note("workload.seq_len", seq_len, "not given; the tokens of an image"))
    batch = batch_of(inputs, seq_len, notes)
    adapters, frozen = trainable_of(inputs.trainable, model)
    if adapters is not None:
        notes.append(adapters_note(adapters, inputs.trainable or "", model))
    task = one_of("--task", inputs.task or "pretrain", TASKS)
    if task == "sft":
        notes.append(_note("workload.task", task, "sequences are packed: the same work"))
    optimizer = optimizer_of(inputs.optimizer, notes)
    return Workload(
        task=task,
        global_batch=batch,
        seq_len=seq_len,
        dtype=state_formats(dtype, _state_words(inputs), optimizer),
        optimizer=optimizer,
        trainable="full" if adapters is None else adapters,
        frozen=frozen,
        expert_load=expert_load_of(inputs.expert_load, model),
        lengths=lengths_of(inputs.lengths, seq_len),
        objective=objective_choice.objective,
    )


def _state_words(inputs: Inputs) -> dict[str, str]:
    """The typed formats of states, by flag."""
    return {name: word for name in STATE_ROLES if (word := getattr(inputs, name)) is not None}


def _calibration_or_profile(
    inputs: Inputs,
    weakest: Device,
    cluster: ClusterSpec,
    stack: StackSpec,
    dtype: DtypeRecord,
    notes: list[Assumption],
) -> Measured | None:
    """Machine measurements: a stored calibration by name, or a profile.

    Unless ``none`` was typed, the newest profile is used if the cluster's one device kind is a core
    or GPU of this machine (its fingerprint), measured with as many ranks at work as a cluster node
    has devices, which share memory and links. Further nodes are assumed alike; between nodes the
    catalogue's rates hold.
    """
    if inputs.calibration not in (None, "none"):
        return calibration_for(inputs.calibration, cluster, stack, dtype)
    if inputs.calibration == "none" or len(cluster.groups) > 1:
        return None
    if weakest.name == CPU:
        stored = stored_profiles(cluster.device_count)
        notes += profile_notes(cluster.device_count, stored)
        return stored.profile
    group = cluster.groups[0]
    stored = stored_profiles(group.devices_per_node, weakest.name)
    notes += device_notes(weakest, group, stored)
    return stored.profile
