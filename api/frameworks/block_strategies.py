"""Chunks of a file whose blocks have strategies of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...planner.solve.problem import Problem
from ...spec.errors import InputError
from ...spec.model.model_spec import BlockLayer, ModelSpec
from ...spec.plan.layer_cuts import after_blocks
from ...spec.plan.plan import LayerPlan
from ...spec.strategy import LayerStrategy
from ..planning.uniform_chunks import ChunkSplitter, strategy_chunks
from ..planning.uniform_plan import UniformStrategy, block_strategy
from .settings import BlockSettings


def split_by_block(blocks: BlockSettings, problem: Problem, stages: int) -> ChunkSplitter:
    """Splits a model where the file does, each block under its own strategy.

    Args:
        blocks: of the file.
        problem: whose model and devices they are for.
        stages: of the pipeline.

    Raises:
        InputError: as many blocks as the model does not have, or a degree that does not divide.
    """
    count = problem.model.block_count
    if len(blocks.strategies) != count:
        given = f"{problem.model.name}, {count} blocks"
        allowed = f"a model of {len(blocks.strategies)} blocks, as {blocks.where} has"
        raise InputError("--model", given, allowed)
    ranks = problem.cluster.device_count // stages
    strategies = [_strategy(flags, problem, ranks) for flags in blocks.strategies]

    def split(
        model: ModelSpec, chunks: int, strategy: LayerStrategy
    ) -> list[tuple[LayerPlan, ...]]:
        layers = model.layers()
        of_block = iter(strategies)
        taken = [next(of_block) if isinstance(x, BlockLayer) else strategy for x in layers]
        is_block = [isinstance(layer, BlockLayer) for layer in layers]
        return strategy_chunks(model, after_blocks(is_block, blocks.counts), taken)

    return split


def _strategy(flags: Mapping[str, Any], problem: Problem, ranks: int) -> LayerStrategy:
    typed = UniformStrategy.from_flags(flags)
    strategy = block_strategy(typed, problem, ranks, [])
    return replace(strategy, ep=typed.ep or 1, etp=typed.etp or 1)
