"""Rules of a whole plan, behind ``Plan.check``.

Rules for one layer are in :mod:`layer_rules`, those for a model or a cluster in
:mod:`input_rules`; this module applies them to a plan and adds those for plans only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from ..model.towers import shared_tables
from ..program_values import (
    program_layer_violation,
    program_pipeline_violation,
    program_violation,
)
from ..recomputation import results_violation
from ..technique import Scope, Values
from ..technique_values import (
    technique_scope_violation,
    technique_token_violation,
    technique_violation,
)
from ..techniques import TECHNIQUES
from .action_rules import action_order_violation
from .input_rules import (
    MAX_LAYERS,
    cluster_problems,
    cluster_violation,
    model_problems,
    model_violation,
    workload_violation,
)
from .layer_rules import (
    layer_violation,
    schedule_stack_violation,
    schedule_violation,
    stack_violation,
    tied_embedding_violation,
    unsupported_devices,
    unsupported_dtype,
    unsupported_run,
)
from .shared_stage_rules import (
    batch_share_violation,
    device_problems,
    override_problems,
    shared_stage_violation,
    tied_stage_violation,
)

if TYPE_CHECKING:
    from ..model.model_spec import Layer, ModelSpec
    from ..plan.plan import LayerPlan, Plan, Program, Stage, Violation
    from ..workload.workload import Workload

__all__ = [
    "MAX_LAYERS",
    "cluster_violation",
    "layer_violation",
    "model_violation",
    "plan_violations",
    "schedule_stack_violation",
    "schedule_violation",
    "stack_violation",
    "tied_embedding_violation",
    "unsupported_devices",
    "unsupported_dtype",
    "unsupported_run",
    "workload_violation",
]


def plan_violations(plan: Plan, techniques: Values = TECHNIQUES) -> list[Violation]:
    """All broken rules of ``plan``."""
    violations: list[Violation] = []
    if len(plan.programs) != 1:
        _add(violations, "programs", f"{len(plan.programs)} programs; one is built so far")
    for problem in cluster_problems(plan.cluster):
        _add(violations, f"cluster.{problem.field}", problem.reason)
    broken_models = _check_models(violations, plan)
    for index, program in enumerate(plan.programs):
        path = f"programs.{index}"
        if program.model not in plan.models or program.workload not in plan.workloads:
            _add(violations, path, "model or workload names no entry of the plan")
            continue
        if not _has_valid_shape(violations, path, program):
            continue
        _check_devices(violations, path, plan, program)
        if program.model not in broken_models and _check_layers(violations, path, plan, program):
            _check_strategies(violations, path, plan, program, techniques)
    for path, used, scope in _technique_maps(plan):
        for name in used:
            if reason := technique_scope_violation(name, scope, techniques):
                _add(violations, path, reason)
    return violations


def _check_models(violations: list[Violation], plan: Plan) -> set[str]:
    broken = set()
    for name, model in plan.models.items():
        for problem in model_problems(model):
            _add(violations, f"models.{name}.{problem.field}", problem.reason)
            broken.add(name)
    return broken


def _technique_maps(plan: Plan) -> Iterable[tuple[str, Mapping[str, object], Scope | None]]:
    """Path, techniques in use there, and their scope; None: there are none of it."""
    yield "techniques", plan.techniques, None
    for index, program in enumerate(plan.programs):
        yield f"programs.{index}.techniques", program.techniques, "program"
        for s, stage in enumerate(program.stages):
            for parts in stage.virtual_stages:
                for part in parts:
                    for strategy in (part.strategy, *part.by_device_group.values()):
                        yield f"programs.{index}.stages.{s}", strategy.techniques, "layer"


def _add(violations: list[Violation], path: str, message: str) -> None:
    from ..plan.plan import Violation

    violations.append(Violation(path=path, message=message))


def _has_valid_shape(violations: list[Violation], path: str, program: Program) -> bool:
    """True if all stages have the same number of virtual stages."""
    before = len(violations)
    if not program.stages:
        _add(violations, f"{path}.stages", "a program needs at least one stage")
        return False
    chunks = len(program.stages[0].virtual_stages)
    for s, stage in enumerate(program.stages):
        where = f"{path}.stages.{s}"
        if not stage.devices:
            _add(violations, f"{where}.devices", "a stage needs devices")
        if len(stage.virtual_stages) != chunks or chunks == 0:
            _add(
                violations,
                f"{where}.virtual_stages",
                "every stage needs the same number, at least 1",
            )
        if any(not parts for parts in stage.virtual_stages):
            _add(violations, f"{where}.virtual_stages", "a virtual stage needs layers")
        if sorted(stage.mesh_order) != ["cp", "dp", "tp"] or stage.mesh_order[-1] != "tp":
            _add(violations, f"{where}.mesh_order", "must be dp, cp and tp once each, tp innermost")
    return len(violations) == before


def _check_devices(violations: list[Violation], path: str, plan: Plan, program: Program) -> None:
    sizes = {group.name: group.device_count for group in plan.cluster.groups}
    spans_by_group: dict[str, list[tuple[int, int, str]]] = {name: [] for name in sizes}
    for s, stage in enumerate(program.stages):
        where = f"{path}.stages.{s}.devices"
        for problem in device_problems(stage):
            _add(violations, where, f"{problem.value}; {problem.allowed}")
        for devices in stage.devices:
            if devices.device_group not in sizes:
                _add(violations, where, f"no device group {devices.device_group!r} in the cluster")
                continue
            size, end = sizes[devices.device_group], devices.first_rank + devices.count
            if end > size:
                _add(violations, where, f"{devices.device_group} has only {size} devices")
                continue
            spans_by_group[devices.device_group].append((devices.first_rank, end, where))
    for spans in spans_by_group.values():
        _check_overlaps(violations, spans)


def _check_overlaps(violations: list[Violation], spans: list[tuple[int, int, str]]) -> None:
    free = 0
    for first, end, where in sorted(spans):
        if first < free:
            _add(violations, where, "a device is in two stages")
        free = max(free, end)


def _check_layers(violations: list[Violation], path: str, plan: Plan, program: Program) -> bool:
    """True if the chunks hold every layer once, in order."""
    where, towers = f"{path}.stages", plan.models[program.model].towers
    sizes = {tower.name: tower.layer_count for tower in towers}
    starts = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    next_layer = 0
    for part in (part for _, _, parts in program.chunks() for part in parts):
        name, first, last = part.layers
        if name not in sizes or not first <= last < sizes[name]:
            _add(violations, where, f"layers {list(part.layers)} are not in the model")
            return False
        if starts[name] + first != next_layer:
            break
        next_layer = starts[name] + last + 1
    else:
        if next_layer == sum(sizes.values()):
            return True
    _add(violations, where, "the chunks must hold every layer exactly once, in order")
    return False


def _check_strategies(
    violations: list[Violation], path: str, plan: Plan, program: Program, techniques: Values
) -> None:
    workload, model = plan.workloads[program.workload], plan.models[program.model]
    schedule, samples = program.schedule, program.micro_batch_samples
    layers = model.layers()
    if reason := workload_violation(model, workload):
        _add(violations, "workloads", reason)
    if samples * schedule.microbatches != workload.global_batch:
        _add(
            violations,
            f"{path}.schedule",
            f"{samples} samples x {schedule.microbatches} microbatches is not the global batch "
            f"{workload.global_batch}",
        )
    stages, chunks = len(program.stages), program.chunks_per_stage
    if reason := schedule_violation(
        schedule.kind, stages, chunks, schedule.microbatches, len(layers)
    ):
        _add(violations, f"{path}.schedule", reason)
    elif schedule.actions is not None:
        shape = (schedule.kind, schedule.actions, stages, chunks, schedule.microbatches)
        if reason := action_order_violation(*shape):
            _add(violations, f"{path}.schedule.actions", reason)
    if reason := _program_reason(program, model, workload, techniques):
        _add(violations, f"{path}.techniques", reason)
    for s, stage in enumerate(program.stages):
        where = f"{path}.stages.{s}"
        values = program.techniques
        _check_stage(violations, where, model, workload, stage, samples, techniques, values)
    strategies = program.layer_strategies()
    for recompute in dict.fromkeys(strategy.recompute for strategy in strategies):
        if reason := results_violation(model, recompute):
            _add(violations, f"{path}.stages", reason)
    tables = shared_tables(model)
    reason = tied_embedding_violation(model, tuple(strategies), tables)
    if reason := reason or tied_stage_violation(model, program, tables):
        _add(violations, f"{path}.stages", reason)


def _program_reason(
    program: Program, model: ModelSpec, workload: Workload, techniques: Values
) -> str | None:
    """Rule broken by the program's own techniques, its layers apart."""
    values, schedule = program.techniques, program.schedule
    shape = schedule.kind, len(program.stages), program.chunks_per_stage, schedule.microbatches
    reason = program_violation(values, model, workload, techniques)
    return reason or program_pipeline_violation(values, *shape, techniques)


def _check_stage(
    violations: list[Violation],
    where: str,
    model: ModelSpec,
    workload: Workload,
    stage: Stage,
    samples: int,
    techniques: Values,
    program_values: Mapping[str, object],
) -> None:
    """Check the strategies of a stage on each of its device groups."""
    several = len(stage.devices) > 1
    if several and (reason := batch_share_violation(stage, samples)):
        _add(violations, f"{where}.devices", reason)
        return
    for part in (part for parts in stage.virtual_stages for part in parts):
        layers_path = f"{where}: layers {part.layers[1]}-{part.layers[2]}"
        override_errors = list(override_problems(stage, part, techniques))
        for problem in override_errors:
            _add(violations, layers_path, f"by_device_group {problem.value}: {problem.allowed}")
        kinds = dict.fromkeys(_distinct_layers(model, part, workload.seq_len))
        strategies = dict.fromkeys(part.strategy_on(p.device_group) for p in stage.devices)
        for strategy in strategies if not override_errors else ():
            for layer, tokens in kinds:
                if several:
                    reason = shared_stage_violation(layer, strategy, stage, samples, tokens)
                else:
                    ranks = stage.device_count
                    reason = layer_violation(layer, strategy, ranks, samples, tokens)
                place = (layer, strategy, stage.device_count)
                reason = reason or technique_violation(*place, workload.dtype, techniques)
                reason = reason or technique_token_violation(strategy, tokens, techniques)
                reason = reason or program_layer_violation(program_values, *place, techniques)
                if reason:
                    _add(violations, layers_path, reason)


def _distinct_layers(
    model: ModelSpec, part: LayerPlan, seq_len: int
) -> Iterator[tuple[Layer, int]]:
    name, first, last = part.layers
    tower = model.tower(name)
    for _, run in groupby(tower.expand()[first : last + 1], key=id):
        yield next(run), tower.seq_len or seq_len
