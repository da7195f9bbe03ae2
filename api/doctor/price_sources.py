"""Sources of layer seconds on a cluster: measured, learned, analytic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...costmodel.explain.price_sources import SOURCES, SourceSeconds, SourceSum
from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.pricing.machine import Machine
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.sharding.optimizers import merged_share, update_work
from ...planner.solve.problem import Problem
from ...spec.choices import SequenceParallel
from ...spec.model.experts import experts_of
from ...spec.model.layers import Layer
from ...spec.report.report import BREAKDOWN_TERMS
from ...spec.rules.plan_rules import layer_violation
from ...spec.strategy import LayerStrategy, Sharding


def price_rows(problem: Problem, lowering: Lowering) -> list[dict[str, Any]]:
    """List seconds by term and source, by device group.

    Seconds of one micro-batch of one sample: every layer forward and backward once, under the
    widest legal tensor parallelism of a node, experts over the same ranks, optimizer states over
    all others; gradients are reduced and the optimizer steps once. Nothing is overlapped: these are
    a plan's component prices, not a step.
    """
    return [_group_row(problem, lowering, group.name) for group in problem.cluster.groups]


def _group_row(problem: Problem, lowering: Lowering, name: str) -> dict[str, Any]:
    cluster = problem.cluster.alone(name)
    group, ranks = cluster.groups[0], cluster.device_count
    strategy = usual_strategy(lowering, group.devices_per_node, ranks)
    pricer = Pricer(Machine(cluster, problem.measured), problem.stack)
    terms = _terms(problem, lowering, pricer, strategy, ranks)
    return {
        "device_group": name,
        "device": group.device,
        "tp": strategy.tp,
        "sp": strategy.sequence_parallel,
        "ep": strategy.ep,
        "dp": strategy.data_parallel(ranks),
        "shard": strategy.shard.level_name(strategy.state_ranks(ranks)),
        "terms": terms,
        "share": _shares(terms),
    }


def usual_strategy(lowering: Lowering, per_node: int, ranks: int) -> LayerStrategy:
    """Return the widest legal tensor parallelism inside a node, or none.

    Args:
        lowering: of the model.
        per_node: devices of a node.
        ranks: devices of the group.
    """
    kinds = {
        (x, context.tokens) for x, context in zip(lowering.layers, lowering.contexts, strict=True)
    }
    for strategy in _candidates(lowering, per_node, ranks):
        samples = strategy.data_parallel(ranks)
        if not any(
            layer_violation(x, strategy_of_layer(x, strategy), ranks, samples, tokens)
            for x, tokens in kinds
        ):
            return strategy
    return LayerStrategy()


def strategy_of_layer(layer: Layer, strategy: LayerStrategy) -> LayerStrategy:
    """Adapt a strategy to a layer: no ep, etp without experts."""
    return strategy if experts_of(layer) is not None else replace(strategy, ep=1, etp=1)


def _candidates(lowering: Lowering, per_node: int, ranks: int) -> Iterator[LayerStrategy]:
    every = [moe.experts for x in lowering.layers if (moe := experts_of(x)) is not None]
    spread = per_node if every and min(every) % per_node == 0 else 1
    for tp in (n for n in range(per_node, 0, -1) if per_node % n == 0):
        shard = Sharding.from_text("zero1", ranks // tp)
        for ep in dict.fromkeys((spread, 1)):
            split: SequenceParallel = "none" if tp == 1 else "megatron"
            yield LayerStrategy(tp=tp, sequence_parallel=split, ep=ep, shard=shard)
        if tp > 1:
            yield LayerStrategy(tp=tp, etp=tp if every else 1, shard=shard)


def _terms(
    problem: Problem, lowering: Lowering, pricer: Pricer, strategy: LayerStrategy, ranks: int
) -> dict[str, dict[str, float]]:
    """Return seconds of each term by source, in breakdown order."""
    samples, workload = strategy.data_parallel(ranks), problem.workload
    every = tuple(
        (n, strategy_of_layer(layer, strategy)) for n, layer in enumerate(lowering.layers)
    )
    chunk = lowering.chunk(every, None, ranks, samples)
    units = [entry.unit for entry in chunk.layers if entry.unit is not None]
    seconds = SourceSum(pricer)
    layers = {id(entry.lowered): entry.lowered for entry in chunk.layers}
    for key, times in Counter(id(entry.lowered) for entry in chunk.layers).items():
        seconds.add_layer(layers[key], times)
    for key, times in Counter(map(id, units)).items():
        seconds.add_unit(next(unit for unit in units if id(unit) == key), times)
    share, clips = (
        merged_share(unit.update for unit in units),
        workload.gradient_clip_norm is not None,
    )
    seconds.add_update(update_work(share, 0, workload.optimizer, workload.dtype, clips))
    return _in_order(seconds.seconds())


def _in_order(seconds: SourceSeconds) -> dict[str, dict[str, float]]:
    return {
        term: {"seconds": sum(seconds[term].values()), **dict(seconds[term].items())}
        for term in BREAKDOWN_TERMS
        if sum(seconds.get(term, {}).values())
    }


def _shares(terms: dict[str, dict[str, float]]) -> dict[str, float]:
    total_s = sum(row["seconds"] for row in terms.values())
    return {
        source: sum(row[source] for row in terms.values()) / total_s if total_s else 0.0
        for source in SOURCES
    }
