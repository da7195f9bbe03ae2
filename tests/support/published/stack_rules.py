"""What training software cannot run, read from its documentation and apart from the catalogue.

A second opinion on answers for a stack: the planner reads the catalogue, these rules do not.

===============  ==================================================================================
all              one tp, cp, ep, etp, sequence parallelism and sharding for all layers: degrees are
                 arguments of a launch (Megatron-LM ``arguments.py``, torchtitan
                 ``ParallelismConfig``, accelerate ``ParallelismConfig``, DeepSpeed's JSON)
megatron         ``--use-distributed-optimizer`` is zero1, of several instances too
                 (``--num-distributed-optimizer-instances``); Megatron-FSDP shards more, without
                 pipelines; ``--recompute-method block`` recomputes some layers of a stage; Ulysses
                 is ``--cp-comm-type a2a``
torchtitan       sharding is FSDP or HSDP (``distributed/fsdp.py``): no zero1, and a ring's ranks
                 always shard (``parallel_dims.py``: fsdp is dp_shard x cp); no Ulysses
deepspeed        ``PipelineEngine`` refuses ZeRO-2 and ZeRO-3 (``runtime/pipe/engine.py``) and runs
                 1F1B without virtual stages; sequence parallelism is Ulysses, no ring
transformers     ``Trainer`` over FSDP or ZeRO: no pipeline; tensor and context parallelism beside
                 FSDP only, Ulysses and a ring never together (accelerate
                 ``parallelism_config.py``)
===============  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from published.layer_choices import distinct_strategies, kinds_of_parallelism, placed_layers

from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import Sharding

DEGREES = ("tp", "sequence_parallel", "cp", "ep", "etp", "shard")
"""Fields of a strategy that a launch sets once."""


def stack_faults(plan: Plan, stack: str) -> list[str]:
    """What a stack cannot run of a plan; empty if it can run it, or for our own executor.

    Args:
        plan: a legal plan.
        stack: its text, ``NAME`` or ``NAME:setting=value,…``.
    """
    rules = RULES.get(stack.partition(":")[0])
    if rules is None:
        return []
    return [*_several_degrees(plan), *dict.fromkeys(rules(plan))]


def _several_degrees(plan: Plan) -> Iterator[str]:
    for name in DEGREES:
        values = {strategy[name] for strategy in distinct_strategies(plan) if name in strategy}
        if len(values) > 1:
            yield f"{len(values)} values of {name}"


def _megatron(plan: Plan) -> Iterator[str]:
    words = _recomputations(plan)
    if len(words) > 2 or (len(words) == 2 and words != {"none", "full"}):
        yield f"recomputation {', '.join(sorted(words))}"
    if _stages(plan) > 1 and _levels(plan) & {"zero2", "zero3", "hsdp", "other"}:
        yield "sharded gradients or parameters in a pipeline"


def _torchtitan(plan: Plan) -> Iterator[str]:
    yield from _one_recomputation(plan)
    kinds, levels = kinds_of_parallelism(plan), _levels(plan)
    if "sequence" in kinds:
        yield "Ulysses"
    if "zero1" in levels:
        yield "zero1"
    if "other" in levels:
        yield "degrees of sharding that are neither FSDP nor HSDP"
    if "zero0" in levels and "context" in kinds:
        yield "zero0 beside a ring"


def _deepspeed(plan: Plan) -> Iterator[str]:
    yield from _one_recomputation(plan)
    if "context" in kinds_of_parallelism(plan):
        yield "a ring of context parallelism"
    if _stages(plan) > 1:
        if _levels(plan) - {"zero0", "zero1"}:
            yield "ZeRO-2 or ZeRO-3 in a pipeline"
        if plan.program.schedule.kind != "1f1b":
            yield f"schedule {plan.program.schedule.kind}"


def _transformers(plan: Plan) -> Iterator[str]:
    yield from _one_recomputation(plan)
    kinds = kinds_of_parallelism(plan)
    if "pipeline" in kinds:
        yield "a pipeline"
    if kinds >= {"context", "sequence"}:
        yield "Ulysses and a ring"
    if "zero0" in _levels(plan) and "data" in kinds and kinds & {"tensor", "context"}:
        yield "zero0 beside tensor or context parallelism"


RULES: Mapping[str, Callable[[Plan], Iterator[str]]] = {
    "megatron": _megatron,
    "megatron-deepspeed": _megatron,
    "torchtitan": _torchtitan,
    "deepspeed": _deepspeed,
    "transformers": _transformers,
    "accelerate": _transformers,
}


def _stages(plan: Plan) -> int:
    return len(plan.program.stages)


def _recomputations(plan: Plan) -> set[str]:
    return {s["recompute"].strip("'") for s in distinct_strategies(plan) if "recompute" in s}


def _one_recomputation(plan: Plan) -> Iterator[str]:
    words = _recomputations(plan)
    if len(words) > 1:
        yield f"recomputation {', '.join(sorted(words))}"


def _levels(plan: Plan) -> set[str]:
    """Names of the sharding of every layer that several ranks hold."""
    placed = [
        (strategy.shard, strategy.state_ranks(ranks)) for _, strategy, ranks in placed_layers(plan)
    ]
    return {_level(shard, ranks) for shard, ranks in placed if ranks > 1}


def _level(shard: Sharding, ranks: int) -> str:
    """``zero0`` to ``zero3``, ``hsdp`` with parameters gathered or not, or ``other``."""
    name = shard.level_name(ranks).partition(":")[0]
    if name in ("zero0", "zero1", "zero2", "zero3", "hsdp"):
        return name
    if shard.secondary_parameters == 1 and shard.parameters == 1:
        if shard.gradients == 1:
            return "zero1"  # of several instances
        if shard.gradients == shard.optimizer:
            return "hsdp"
    return "other"
