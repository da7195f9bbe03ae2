"""Plans of equal simulated time: the most even cut is the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.candidates.evaluator import Decision
from shardwright.planner.search.even_boundaries import level_boundaries
from shardwright.planner.solve.engine import make_search
from shardwright.planner.solve.options import DEFAULT_OPTIONS
from shardwright.planner.space.pipeline_shape import PipelineShape
from shardwright.spec.cluster.stack_spec import StackLimits
from shardwright.spec.strategy import LayerStrategy

MODEL = {"layers": 8, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 400_000}
"""With a head so large that the last stage is the bottleneck of every cut."""
UNEVEN = (0, 2, 3, 9, 10)


def test_stages_beside_the_bottleneck_are_levelled() -> None:
    problem = resolve(
        Inputs(model=MODEL, cluster="1x4xA100", global_batch=16, seq_len=1024, stack="megatron")
    )
    problem = replace(problem, stack=replace(problem.stack, limits=StackLimits()))
    engine = make_search(problem, DEFAULT_OPTIONS).engine
    shape = PipelineShape(kind="1f1b", stages=4, chunks=1, ranks=1, microbatches=16)
    start = engine.evaluator(Decision(shape, UNEVEN, (LayerStrategy(),) * 10))
    assert start is not None
    assert start.chunk_blocks == (1, 1, 6, 0)
    level = level_boundaries(engine, start)
    assert level.step_time_s == pytest.approx(start.step_time_s, rel=1e-12)
    assert level.feasible
    assert level.unevenness < start.unevenness
    assert max(level.chunk_blocks) <= 4
    assert engine.incumbents.rank(level)[:3] <= engine.incumbents.rank(start)[:3]
    assert level_boundaries(engine, level) is level
