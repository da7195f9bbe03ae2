"""Rules for one layer's strategy and for a pipeline's shape.

A rule is a function that returns the reason why something is illegal, or None. The planner
generates only strategies that pass :func:`layer_violation`, and reports the reason for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..choices import RECOMPUTES, RUN_MOMENTS, Recompute
from ..model.experts import expert_violation
from ..model.layers import has_block
from ..model.model_spec import (
    EmbeddingLayer,
    HeadLayer,
    Layer,
    ModelSpec,
)
from ..model.tensor_split import split_sizes
from ..model.towers import shared_tables
from ..recomputation import is_by_operation, saved_names
from ..schedules.stage_order import V_KINDS, ScheduleKind
from ..strategy import LayerStrategy
from ..technique import Values
from ..technique_values import technique_stack_violation
from ..techniques import TECHNIQUES
from ..workload.workload import DtypeRecord, Workload
from .context_parallel_rules import context_parallel_violation

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec

CORE = "cpu"
"""Catalogue name of one core of a machine, which communicates over gloo, all others over NCCL."""


def recomputes_of(layer: Layer) -> tuple[Recompute, ...]:
    """Recomputation choices of a layer under any stack; only blocks have any."""
    return RECOMPUTES if has_block(layer) else ("none",)


def layer_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, batch_samples: int, seq_len: int
) -> str | None:
    """Reason why ``layer`` may not run under ``strategy``, or None.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of its stage.
        batch_samples: samples of one micro-batch over the whole stage.
        seq_len: tokens of a sample.
    """
    return (
        _degree_violation(strategy, stage_ranks, batch_samples)
        or context_parallel_violation(layer, strategy, seq_len)
        or _tensor_parallel_violation(layer, strategy, seq_len)
        or expert_violation(layer, strategy, stage_ranks)
        or _sharding_violation(strategy, stage_ranks)
        or _recompute_violation(layer, strategy)
    )


def _degree_violation(strategy: LayerStrategy, ranks: int, batch_samples: int) -> str | None:
    if ranks % strategy.width:
        name, size = ("tp", strategy.tp) if strategy.cp == 1 else ("tp x cp", strategy.width)
        return f"{name} {size} does not divide the stage's {ranks} ranks"
    data_parallel = strategy.data_parallel(ranks)
    if batch_samples % data_parallel:
        return f"dp {data_parallel} does not divide the micro-batch's {batch_samples} samples"
    return None


def _tensor_parallel_violation(layer: Layer, strategy: LayerStrategy, seq_len: int) -> str | None:
    tp = strategy.weight_split
    if strategy.sequence_parallel == "megatron":
        if tp == 1:
            return "sequence_parallel megatron needs tp > 1"
        if seq_len % tp:
            return f"tp {tp} with sequence parallelism does not divide the {seq_len} tokens"
    for name, size in split_sizes(layer).items():
        if size % tp:
            return f"tp {tp} does not divide {name} {size}"
    if not isinstance(layer, (EmbeddingLayer, HeadLayer)):
        return None
    if -(-layer.vocab // tp) * (tp - 1) >= layer.vocab:
        return f"tp {tp} leaves a rank without rows of vocab {layer.vocab}"
    return None


def _sharding_violation(strategy: LayerStrategy, ranks: int) -> str | None:
    state_ranks, dp = strategy.state_ranks(ranks), strategy.data_parallel(ranks)
    shard, secondary = strategy.shard, strategy.shard.secondary_parameters
    for name in ("parameters", "secondary_parameters", "gradients", "optimizer"):
        degree = getattr(shard, name)
        if state_ranks % degree:
            ranks_text = (
                f"dp {dp}"
                if state_ranks == dp
                else f"the {state_ranks} ranks that hold equal weights"
            )
            return f"shard.{name} {degree} does not divide {ranks_text}"
    if secondary != 1 and (shard.parameters % secondary or shard.parameters == secondary):
        return (
            f"shard.secondary_parameters {secondary} must divide shard.parameters and be below it"
        )
    if shard.gradients % shard.parameters or shard.optimizer % shard.gradients:
        return "shard degrees must nest: parameters divides gradients divides optimizer"
    return None


def _recompute_violation(layer: Layer, strategy: LayerStrategy) -> str | None:
    if strategy.recompute != "none" and not has_block(layer):
        return f"recompute {strategy.recompute} applies to blocks, not to the {layer.kind}"
    return None


def stack_violation(
    strategy: LayerStrategy, stack: StackSpec, techniques: Values = TECHNIQUES
) -> str | None:
    """Reason why the stack does not support this strategy, or None."""
    if stack.state_layout == "contiguous" and strategy.shard.gradients > 1:
        return f"the stack {stack.name} shards optimizer states only (zero0 or zero1)"
    by_operation = is_by_operation(strategy.recompute) and stack.recompute_by_operation
    if not by_operation and strategy.recompute not in stack.recompute:
        return f"the stack {stack.name} recomputes {' or '.join(stack.recompute)} only"
    if strategy.cp > 1 and stack.attention != "flash":
        return f"cp {strategy.cp} merges parts of flash attention, not of {stack.attention}"
    return technique_stack_violation(strategy, stack, techniques)


def unsupported_run(
    strategy: LayerStrategy, workload: Workload, techniques: Values = TECHNIQUES
) -> str | None:
    """Reason why the executor cannot run a strategy and workload, or None."""
    if reason := unsupported_dtype(workload.dtype):
        return reason
    if reason := unsupported_training(workload):
        return reason
    if reason := _unsupported_adapters(strategy, workload) or _unsupported_results(
        strategy, workload
    ):
        return reason
    return _unsupported_degrees(strategy, workload) or _unsupported_lengths(
        strategy, workload, techniques
    )


def _unsupported_lengths(
    strategy: LayerStrategy, workload: Workload, techniques: Values
) -> str | None:
    """Reason why documents that share a sequence cannot run under a strategy, or None."""
    if workload.lengths is None:
        return None
    if strategy.cp > 1:
        return f"cp {strategy.cp} with documents' lengths is planned but not run yet"
    if is_by_operation(strategy.recompute):
        return f"recompute {strategy.recompute} with documents' lengths is planned but not run yet"
    for technique in techniques:
        if technique.one_document and technique.name in strategy.techniques:
            return f"{technique.name} with documents' lengths is planned but not run yet"
    return None


def _unsupported_degrees(strategy: LayerStrategy, workload: Workload) -> str | None:
    """Reason why degrees that nest cannot run, or None."""
    shard = strategy.shard
    if shard.gradients in (1, shard.optimizer) and shard.parameters in (1, shard.optimizer):
        return None
    degrees = f"shard {shard.parameters}/{shard.gradients}/{shard.optimizer}"
    if workload.adapters is not None:
        return f"{degrees} beside lora is planned but not run yet: each state over one degree"
    return None


def unsupported_training(workload: Workload) -> str | None:
    """Reason why the executor cannot train so, or None."""
    if workload.optimizer not in RUN_MOMENTS:
        names = " or ".join(RUN_MOMENTS)
        return f"optimizer {workload.optimizer} is planned but not run yet; use {names}"
    if workload.frozen:
        return "frozen towers are planned but not run yet; train full"
    adapters, param = workload.adapters, workload.dtype.param
    if adapters is not None and adapters.base_dtype not in (None, param):
        return f"frozen weights in {adapters.base_dtype} are planned but not run yet; use {param}"
    return None


def _unsupported_results(strategy: LayerStrategy, workload: Workload) -> str | None:
    if not is_by_operation(strategy.recompute):
        return None
    beside = "lora" if workload.adapters is not None else min(strategy.techniques, default="")
    if beside:
        return f"recompute by operation beside {beside} is planned but not run yet"
    for name in saved_names(strategy.recompute):
        if name.startswith("experts_"):
            return f"a kept result of {name} is planned but not run yet"
    return None


def _unsupported_adapters(strategy: LayerStrategy, workload: Workload) -> str | None:
    if workload.adapters is None:
        return None
    if strategy.techniques:
        return f"{min(strategy.techniques)} beside lora is planned but not run yet"
    param = workload.dtype.param
    if param != "fp32" and strategy.shard.optimizer > 1:
        return f"lora beside sharded {param} weights is planned but not run yet; use fp32 or zero0"
    return None


def unsupported_dtype(dtype: DtypeRecord) -> str | None:
    """Reason for not running with states in these formats, or None.

    It holds weights, gradients and moments in fp32, reduces gradients in fp32 or bf16 and computes
    in fp32, bf16 or, with loss scaling, fp16: the records that ``--dtype`` gives for these three.
    """
    if dtype.matmul is not None:
        return f"products in {dtype.matmul} are planned but not run yet; use bf16 or fp32"
    for role in ("gradient", "master", "moments", "communication"):
        dtype_name = getattr(dtype, role)
        if dtype_name != "fp32" and (role, dtype_name) != ("communication", "bf16"):
            return f"dtype.{role} {dtype_name} is not run yet; use fp32"
    if dtype.communication == "bf16" != dtype.param:
        return f"reductions in bf16 beside {dtype.param} computations are not run yet; use bf16"
    return None


def schedule_violation(
    kind: ScheduleKind, stages: int, chunks: int, microbatches: int, layer_count: int
) -> str | None:
    """Reason why a schedule is illegal for this pipeline shape, or None."""
    if stages * chunks > layer_count:
        return f"{stages} stages x {chunks} virtual stages exceed the {layer_count} layers"
    if kind == "interleaved":
        if stages == 1 or chunks == 1:
            return "interleaved needs pp > 1 and vpp > 1"
        if microbatches % stages:
            return f"interleaved needs microbatches ({microbatches}) in multiples of pp ({stages})"
    elif kind in V_KINDS:
        return _v_violation(kind, stages, chunks, microbatches)
    elif kind == "zero_bubble" and stages == 1:
        return "zero_bubble needs pp > 1: one stage has no bubble to fill"
    elif chunks != 1:
        return f"{kind} runs one virtual stage a stage, not {chunks}; use interleaved"
    return None


def _v_violation(kind: ScheduleKind, stages: int, chunks: int, microbatches: int) -> str | None:
    if stages == 1 or chunks != 2:
        return f"{kind} needs pp > 1 and vpp 2 (two chunks a stage, in the shape of a V)"
    if kind == "dualpipe" and microbatches < 2 * stages:
        return f"dualpipe needs at least 2 x pp ({2 * stages}) microbatches, not {microbatches}"
    return None


def schedule_stack_violation(
    kind: ScheduleKind, stack: StackSpec, written: bool = False
) -> str | None:
    """Reason why the stack does not support a schedule, or None.

    Args:
        kind: of the schedule.
        stack: the software that runs it.
        written: True if the plan spells out its order of passes.
    """
    reason = f"the stack {stack.name} has {', '.join(stack.schedules)} only"
    if kind not in stack.schedules:
        return reason
    return f"{reason}, and no order of one's own" if written and stack.fixed_orders else None


def unsupported_devices(devices: Iterable[str]) -> str | None:
    """Reason why the executor cannot join devices in one run, or None."""
    kinds = sorted(set(devices))
    if CORE in kinds and len(kinds) > 1:
        return f"{', '.join(kinds)}: cores and accelerators have no communication in common"
    return None


def tied_embedding_violation(
    model: ModelSpec, strategies: tuple[LayerStrategy, ...], tables: tuple[int, ...] | None = None
) -> str | None:
    """Reason why tied embedding and head cannot share a weight, or None.

    They need one tp, sp and sharding.

    Args:
        model: the model.
        strategies: of all its layers.
        tables: the layers that share a table, if computed already.
    """
    tied = [strategies[i] for i in (shared_tables(model) if tables is None else tables)]
    if any((s.tp, s.shard, s.sequence_parallel) != _tied_decisions(tied[0]) for s in tied):
        return "tied embedding and head need the same tp, sequence_parallel and shard"
    return None


def _tied_decisions(strategy: LayerStrategy) -> tuple[object, ...]:
    return (strategy.tp, strategy.shard, strategy.sequence_parallel)
