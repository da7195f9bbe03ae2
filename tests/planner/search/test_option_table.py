"""Tables of layer options agree with the passes that the simulator times."""

from __future__ import annotations

import pytest
from generators.samples import random_problem
from published.planning import parts_of

from shardwright.costmodel.lowering.chunk import StageChunk, StageLayer
from shardwright.costmodel.lowering.stage_passes import PassKind
from shardwright.costmodel.simulation.pass_time import pass_time
from shardwright.planner.search.build import SingleGroupParts
from shardwright.planner.space.pipeline_shape import PipelineShape
from shardwright.planner.space.search_space import SearchSpace
from shardwright.spec.strategy import LayerStrategy


@pytest.mark.parametrize("seed", range(16))
def test_rows_are_what_a_lone_layer_takes(seed: int) -> None:
    """Without neighbours nothing hides: computation and traffic add up to the pass."""
    parts = parts_of(random_problem(seed, 8))
    contexts, tables = parts.bounds.contexts, parts.bounds.tables
    shape = max(tables.space.shapes(), key=lambda s: (len(_middle(tables.space, s)), s))
    tied = contexts.tied_embeddings(shape)
    for layer, table in enumerate(tables.layers(shape)):
        members = tied.get(layer, (layer,))
        if not members:
            continue
        every = max(1, len(table.strategies) // 7)
        for row, strategy in list(enumerate(table.strategies))[::every]:
            whole_s = _whole_step_s(parts, shape, layer, members, strategy)
            assert table.step_bound_s[row] <= whole_s * (1 + 1e-9)
            if not parts.incumbents.evaluator.simulator.pricer.hides_sharding:
                assert table.step_bound_s[row] == pytest.approx(whole_s, rel=1e-9)
                assert table.step_estimate_s[row] == pytest.approx(whole_s, rel=1e-9)


def _middle(space: SearchSpace, shape: PipelineShape) -> tuple[LayerStrategy, ...]:
    samples = space.request.workload.global_batch // shape.microbatches
    layer_classes = space.layer_classes
    return space.options(layer_classes[len(layer_classes) // 2], shape.ranks, samples)


def _whole_step_s(
    parts: SingleGroupParts,
    shape: PipelineShape,
    layer: int,
    members: tuple[int, ...],
    strategy: LayerStrategy,
) -> float:
    """Seconds of a layer's passes over all micro-batches, timed one by one."""
    simulator, contexts = parts.incumbents.evaluator.simulator, parts.bounds.contexts
    lowering, ranks, samples = simulator.lowering, shape.ranks, contexts.samples(shape)
    lowered = lowering.layer(layer, strategy, None, ranks, samples)
    unit = lowering.unit(members, strategy, ranks)
    entry = StageLayer(layer, lowering.layers[layer], strategy, lowered, unit)
    pricer = simulator.pricer.with_link_span(contexts.link_span(shape))
    last = shape.microbatches - 1
    return pricer.unit(unit).reduce.after_passes_s + sum(
        pass_time(StageChunk((entry,), 0, 0), PassKind(way, 0, m == 0, m == last), pricer).time_s
        for way in (True, False)
        for m in range(shape.microbatches)
    )
