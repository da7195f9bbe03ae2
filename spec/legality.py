"""The rules that make a plan legal, each with a name; planner and Plan.check share them.

A rule is a function that returns the reason why something is illegal, or None. The planner
generates only what passes :func:`layer_reason`, and reports the rest by that reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .cluster import LEVEL_ORDER, ClusterSpec
from .model import BlockLayer, EmbeddingLayer, HeadLayer, Layer, ModelSpec
from .schedule import ScheduleKind
from .strategy import LayerStrategy
from .workload import Workload

MAX_LAYERS = 2**16
"""Layers are listed one by one; the largest published models have some hundreds."""

if TYPE_CHECKING:
    from .plan import Plan, Program, Stage, Violation
    from .stack import StackSpec


def layer_reason(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, batch_samples: int, seq_len: int
) -> str | None:
    """Why ``layer`` may not run under ``strategy``; None if it may.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        batch_samples: samples of one micro-batch over the whole stage.
        seq_len: tokens of a sample.
    """
    return (
        _degree_reason(strategy, stage_ranks, batch_samples)
        or _tensor_parallel_reason(layer, strategy, seq_len)
        or _sharding_reason(strategy, stage_ranks)
        or _recompute_reason(layer, strategy)
    )


def _degree_reason(strategy: LayerStrategy, ranks: int, batch_samples: int) -> str | None:
    for name in ("cp", "ep", "etp"):
        if getattr(strategy, name) != 1:
            return f"{name} {getattr(strategy, name)} is not built yet; use 1"
    if ranks % strategy.tp:
        return f"tp {strategy.tp} does not divide the stage's {ranks} ranks"
    data_parallel = strategy.data_parallel(ranks)
    if batch_samples % data_parallel:
        return f"dp {data_parallel} does not divide the micro-batch's {batch_samples} samples"
    return None


def _tensor_parallel_reason(layer: Layer, strategy: LayerStrategy, seq_len: int) -> str | None:
    tp = strategy.tp
    if strategy.sequence_parallel == "megatron":
        if tp == 1:
            return "sequence_parallel megatron needs tp > 1"
        if seq_len % tp:
            return f"tp {tp} with sequence parallelism does not divide the {seq_len} tokens"
    if isinstance(layer, BlockLayer):
        sizes = {
            "heads": layer.attention.heads,
            "kv_heads": layer.attention.kv_heads,
            "ffn": layer.mlp.ffn,
        }
        for name, size in sizes.items():
            if size % tp:
                return f"tp {tp} does not divide {name} {size}"
    elif -(-layer.vocab // tp) * (tp - 1) >= layer.vocab:
        return f"tp {tp} leaves a rank without rows of vocab {layer.vocab}"
    return None


def _sharding_reason(strategy: LayerStrategy, ranks: int) -> str | None:
    data_parallel = strategy.data_parallel(ranks)
    shard = strategy.shard
    for name in ("parameters", "secondary_parameters", "gradients", "optimizer"):
        degree = getattr(shard, name)
        if data_parallel % degree:
            return f"shard.{name} {degree} does not divide dp {data_parallel}"
    if shard.secondary_parameters != 1:
        return "shard.secondary_parameters is not built yet; use 1"
    if shard.gradients % shard.parameters or shard.optimizer % shard.gradients:
        return "shard degrees must nest: parameters divides gradients divides optimizer"
    return None


def _recompute_reason(layer: Layer, strategy: LayerStrategy) -> str | None:
    if strategy.recompute != "none" and not isinstance(layer, BlockLayer):
        return f"recompute {strategy.recompute} applies to blocks, not to the {layer.kind}"
    return None


def stack_reason(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    """Why the stack cannot say this strategy; None if it can."""
    if stack.state_layout == "contiguous" and strategy.shard.gradients > 1:
        return f"the stack {stack.name} shards optimizer states only (zero0 or zero1)"
    return None


def executable_reason(strategy: LayerStrategy, workload: Workload) -> str | None:
    """Why the bundled executor cannot run this; None if it can."""
    if "fp16" in (workload.dtype.param, workload.dtype.master, workload.dtype.communication):
        return "fp16 needs loss scaling, which the executor does not have yet; use bf16 or fp32"
    shard = strategy.shard
    if shard.gradients not in (1, shard.optimizer) or shard.parameters not in (1, shard.optimizer):
        return "the executor shards each state over one degree or not at all"
    return None


def schedule_reason(
    kind: ScheduleKind, stages: int, chunks: int, microbatches: int, layer_count: int
) -> str | None:
    """Why a schedule is illegal for this pipeline shape; None if it is legal."""
    if stages * chunks > layer_count:
        return f"{stages} stages x {chunks} virtual stages exceed the {layer_count} layers"
    if kind == "interleaved":
        if stages == 1 or chunks == 1:
            return "interleaved needs pp > 1 and vpp > 1"
        if microbatches % stages:
            return f"interleaved needs microbatches ({microbatches}) in multiples of pp ({stages})"
    elif chunks != 1:
        return f"{kind} runs one virtual stage a stage, not {chunks}; use interleaved"
    return None


def cluster_reason(cluster: ClusterSpec) -> str | None:
    """Why a cluster cannot be priced; None if it can."""
    if len(cluster.groups) != 1:
        return f"{len(cluster.groups)} device groups; one is built so far"
    places = [LEVEL_ORDER.index(level.level) for level in cluster.levels]
    sizes = [level.group_size for level in cluster.levels]
    if places != sorted(set(places)) or sizes != sorted(sizes):
        return "levels must be listed once each, from the innermost to the outermost"
    devices = cluster.device_count
    if devices > 1 and (not sizes or sizes[-1] < devices):
        return f"levels: no level joins all {devices} devices"
    return None


def model_reason(model: ModelSpec) -> str | None:
    """Why the model is too large to be planned layer by layer; None if it is not."""
    count = sum(tower.layer_count for tower in model.towers)
    return f"{count} layers; at most {MAX_LAYERS}" if count > MAX_LAYERS else None


def workload_reason(model: ModelSpec, workload: Workload) -> str | None:
    """Why the model cannot take this sequence length; None if it can."""
    if reason := model_reason(model):
        return reason
    for layer in model.kinds():
        positions = layer.positions if isinstance(layer, EmbeddingLayer) else None
        if positions and workload.seq_len > positions:
            return f"seq_len {workload.seq_len} exceeds the {positions} learned positions"
        window = layer.attention.window if isinstance(layer, BlockLayer) else None
        if window is not None and workload.seq_len > window:
            return (
                f"seq_len {workload.seq_len} exceeds the sliding window {window}; "
                "windowed attention is not built yet"
            )
    return None


def plan_violations(plan: Plan) -> list[Violation]:
    """All rules that ``plan`` breaks."""
    found: list[Violation] = []
    if len(plan.programs) != 1:
        _add(found, "programs", f"{len(plan.programs)} programs; one is built so far")
    if reason := cluster_reason(plan.cluster):
        _add(found, "cluster", reason)
    for index, program in enumerate(plan.programs):
        path = f"programs.{index}"
        if program.model not in plan.models or program.workload not in plan.workloads:
            _add(found, path, "model or workload names no entry of the plan")
            continue
        if reason := model_reason(plan.models[program.model]):
            _add(found, f"models.{program.model}", reason)
            continue
        if not _shape_ok(found, path, program):
            continue
        _check_devices(found, path, plan, program)
        if _check_layers(found, path, plan, program):
            _check_strategies(found, path, plan, program)
    for path, techniques in _technique_maps(plan):
        for name in techniques:
            _add(found, path, f"technique {name!r} is not built yet")
    return found


def _technique_maps(plan: Plan) -> Iterable[tuple[str, dict[str, object]]]:
    yield "techniques", plan.techniques
    for index, program in enumerate(plan.programs):
        yield f"programs.{index}.techniques", program.techniques
        for s, stage in enumerate(program.stages):
            for parts in stage.virtual_stages:
                for part in parts:
                    yield f"programs.{index}.stages.{s}", part.strategy.techniques


def _add(found: list[Violation], path: str, message: str) -> None:
    from .plan import Violation

    found.append(Violation(path=path, message=message))


def _shape_ok(found: list[Violation], path: str, program: Program) -> bool:
    """Whether the program has stages, and every stage the same number of virtual stages."""
    before = len(found)
    if not program.stages:
        _add(found, f"{path}.stages", "a program needs at least one stage")
        return False
    chunks = len(program.stages[0].virtual_stages)
    for s, stage in enumerate(program.stages):
        where = f"{path}.stages.{s}"
        if not stage.devices:
            _add(found, f"{where}.devices", "a stage needs devices")
        if len(stage.virtual_stages) != chunks or chunks == 0:
            _add(found, f"{where}.virtual_stages", "every stage needs the same number, at least 1")
        if any(not parts for parts in stage.virtual_stages):
            _add(found, f"{where}.virtual_stages", "a virtual stage needs layers")
        if sorted(stage.mesh_order) != ["cp", "dp", "tp"] or stage.mesh_order[-1] != "tp":
            _add(found, f"{where}.mesh_order", "must be dp, cp and tp once each, tp innermost")
    if program.schedule.actions is not None:
        _add(found, f"{path}.schedule.actions", "hand-written actions are not built yet")
    return len(found) == before


def _check_devices(found: list[Violation], path: str, plan: Plan, program: Program) -> None:
    sizes = {group.name: group.device_count for group in plan.cluster.groups}
    taken: dict[str, set[int]] = {name: set() for name in sizes}
    for s, stage in enumerate(program.stages):
        where = f"{path}.stages.{s}.devices"
        if len(stage.devices) > 1:
            _add(found, where, "a stage over several device groups is not built yet")
        for part in stage.devices:
            if part.device_group not in sizes:
                _add(found, where, f"no device group {part.device_group!r} in the cluster")
                continue
            size = sizes[part.device_group]
            if part.first_rank + part.count > size:
                _add(found, where, f"{part.device_group} has only {size} devices")
                continue
            ranks = set(range(part.first_rank, part.first_rank + part.count))
            if ranks & taken[part.device_group]:
                _add(found, where, "a device is in two stages")
            taken[part.device_group] |= ranks
    widths = {stage.device_count for stage in program.stages}
    if len(widths) > 1:
        _add(found, f"{path}.stages", f"stages of unequal width {sorted(widths)} are not built yet")


def _check_layers(found: list[Violation], path: str, plan: Plan, program: Program) -> bool:
    """Whether the chunks hold every layer of the model once and in order."""
    model = plan.models[program.model]
    expected = [(t.name, i) for t in model.towers for i in range(t.layer_count)]
    names = {tower.name: tower.layer_count for tower in model.towers}
    held: list[tuple[str, int]] = []
    for _, _, parts in program.chunks():
        for part in parts:
            tower, first, last = part.layers
            if tower not in names or not first <= last < names[tower]:
                _add(found, f"{path}.stages", f"layers {list(part.layers)} are not in the model")
                return False
            if part.by_device_group:
                _add(found, f"{path}.stages", "by_device_group is not built yet")
            held += [(tower, i) for i in range(first, last + 1)]
    if held != expected:
        _add(found, f"{path}.stages", "the chunks must hold every layer exactly once, in order")
        return False
    return True


def _check_strategies(found: list[Violation], path: str, plan: Plan, program: Program) -> None:
    workload, model = plan.workloads[program.workload], plan.models[program.model]
    schedule, samples = program.schedule, program.micro_batch_samples
    if reason := workload_reason(model, workload):
        _add(found, "workloads", reason)
    if samples * schedule.microbatches != workload.global_batch:
        _add(
            found,
            f"{path}.schedule",
            f"{samples} samples x {schedule.microbatches} microbatches is not the global batch "
            f"{workload.global_batch}",
        )
    if reason := schedule_reason(
        schedule.kind,
        len(program.stages),
        program.chunks_per_stage,
        schedule.microbatches,
        len(model.layers()),
    ):
        _add(found, f"{path}.schedule", reason)
    for s, stage in enumerate(program.stages):
        _check_stage(found, f"{path}.stages.{s}", plan, stage, samples, workload.seq_len)
    if reason := tied_reason(model, plan.layer_strategies()):
        _add(found, f"{path}.stages", reason)


def _check_stage(
    found: list[Violation], path: str, plan: Plan, stage: Stage, samples: int, seq_len: int
) -> None:
    for parts in stage.virtual_stages:
        for part in parts:
            where = f"{path}: layers {part.layers[1]}-{part.layers[2]}"
            for layer in dict.fromkeys(layer for _, layer, _ in plan.chunk_layers((part,))):
                reason = layer_reason(layer, part.strategy, stage.device_count, samples, seq_len)
                if reason:
                    _add(found, where, reason)


def tied_reason(model: ModelSpec, strategies: tuple[LayerStrategy, ...]) -> str | None:
    """Tied embedding and head share one weight, so they need one tp, sp and sharding."""
    if not model.tie_embeddings:
        return None
    layers = model.layers()
    ends = [
        strategies[i] for i, x in enumerate(layers) if isinstance(x, (EmbeddingLayer, HeadLayer))
    ]
    if any((s.tp, s.shard, s.sequence_parallel) != _shared(ends[0]) for s in ends):
        return "tied embedding and head need the same tp, sequence_parallel and shard"
    return None


def _shared(strategy: LayerStrategy) -> tuple[object, ...]:
    return (strategy.tp, strategy.shard, strategy.sequence_parallel)
