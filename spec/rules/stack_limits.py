"""Plans that a stack cannot run, by its ``limits``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import cast

from ..cluster.stack_spec import ANY_TECHNIQUE, ShardKind, StackSpec
from ..model.model_spec import BlockLayer
from ..plan.layer_cuts import cut_violation
from ..plan.plan import Plan, Program
from ..plan.uniform_strategy import strategy_count
from ..program_values import program_stack_violation
from ..strategy import LEVEL_NAMES, LayerStrategy, Sharding
from ..technique import Values
from ..techniques import TECHNIQUES
from .layer_rules import schedule_stack_violation, stack_violation


def shard_kind(shard: Sharding, state_ranks: int) -> ShardKind:
    """Kind of a sharding over the ranks with the same weights."""
    head = shard.level_name(state_ranks).partition(":")[0]
    return cast(ShardKind, head) if head in (*LEVEL_NAMES, "hsdp", "hpz") else "nested"


def limits_violation(
    strategy: LayerStrategy, ranks: int, stages: int, stack: StackSpec
) -> str | None:
    """Reason why a stack cannot run a layer so, or None.

    Args:
        strategy: of the layer.
        ranks: of its stage.
        stages: of the pipeline.
        stack: with its limits.
    """
    limits = stack.limits
    degrees = {
        "pp": stages,
        "tp": strategy.weight_split,
        "cp": strategy.cp,
        "ep": strategy.ep,
        "etp": strategy.etp if strategy.etp != strategy.weight_split else 1,
    }
    for axis, degree in degrees.items():
        if degree > 1 and axis not in limits.axes:
            return f"the stack {stack.name} has no {axis}"
    if strategy.tp > 1 and strategy.sequence_parallel not in limits.sequence_parallel:
        words = " or ".join(limits.sequence_parallel)
        return f"the stack {stack.name} has sequence parallelism {words} beside tp"
    if strategy.techniques and ANY_TECHNIQUE not in limits.techniques:
        known = {technique.name: technique for technique in TECHNIQUES}
        for name in strategy.techniques:
            word = known[name].text_of(strategy) if name in known else ""
            if name not in limits.techniques and f"{name}={word}" not in limits.techniques:
                return f"the stack {stack.name} has no {name}"
    return _shard_violation(strategy, ranks, stages, stack)


def _shard_violation(
    strategy: LayerStrategy, ranks: int, stages: int, stack: StackSpec
) -> str | None:
    n = strategy.state_ranks(ranks)
    if n == 1:
        return None
    kind, limits = shard_kind(strategy.shard, n), stack.limits
    beside: list[tuple[Sequence[ShardKind], str]] = [(limits.shard, "")]
    if stages > 1:
        beside.append((limits.pipeline_shard, " beside a pipeline"))
    if strategy.weight_split > 1:
        beside.append((limits.tensor_shard, " beside tp"))
    if strategy.cp > 1:
        beside.append((limits.context_shard, " beside cp"))
    for kinds, where in beside:
        if kind not in kinds:
            return f"the stack {stack.name} has no {kind}{where}"
    shards_rings = strategy.cp > 1 and "zero0" not in limits.context_shard
    if shards_rings and kind == "hsdp" and strategy.shard.parameters % strategy.cp:
        return f"the stack {stack.name} shards over all ranks of a ring"
    return None


def stack_plan_violations(
    plan: Plan, stack: StackSpec, techniques: Values = TECHNIQUES
) -> list[str]:
    """Everything in a plan that a stack cannot run, each once."""
    return list(dict.fromkeys(_violations(plan, stack, techniques)))


def _violations(plan: Plan, stack: StackSpec, techniques: Values) -> Iterator[str]:
    program = plan.programs[0]
    kind, stages = program.schedule.kind, len(program.stages)
    if reason := schedule_stack_violation(kind, stack):
        yield reason
    if reason := program_stack_violation(program.techniques, stack, techniques):
        yield reason
    for stage in program.stages:
        parts = (part for parts in stage.virtual_stages for part in parts)
        for strategy in dict.fromkeys(part.strategy for part in parts):
            if reason := stack_violation(strategy, stack, techniques):
                yield reason
            if reason := limits_violation(strategy, stage.device_count, stages, stack):
                yield reason
    layers = plan.models[program.model].layers()
    if stack.limits.one_strategy:
        if len({stage.device_count for stage in program.stages}) > 1:
            yield f"the stack {stack.name} has stages of one width"
        if strategy_count(layers, program.layer_strategies(), techniques) > 1:
            yield f"the stack {stack.name} has one strategy for all layers"
    is_block = [isinstance(layer, BlockLayer) for layer in layers]
    cut = (stack.limits.layer_cut, is_block, kind, stages, _boundaries(program))
    if reason := cut_violation(*cut):
        yield f"the stack {stack.name} has no {reason}"


def _boundaries(program: Program) -> list[int]:
    sizes = (
        sum(part.layers[2] - part.layers[1] + 1 for part in parts)
        for _, _, parts in program.chunks()
    )
    return list(accumulate(sizes, initial=0))
