"""The least path of runs of layers, and the cuts of likely plans, against all that there are."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from generators.catalogue_problems import space as real_space
from hypothesis import given
from hypothesis import strategies as st
from published.planning import parts_of

from shardwright.planner.relaxation.aggregated_bounds import AggregateKey
from shardwright.planner.relaxation.column_generation import BOUND_TOLERANCE
from shardwright.planner.relaxation.dual_prices import _shortest_path
from shardwright.planner.relaxation.layer_groups import LayerGroups, StageArcs, StageContent
from shardwright.planner.relaxation.pipeline_bounds import PipelineBounds
from shardwright.planner.space.pipeline_shape import PipelineShape

ROUNDING = 1e-9
LONG_S = 1e6
Runs = list[list[tuple[int, int, int]]]


def flowing(contents: list[StageContent], runs: Runs) -> LayerGroups:
    """Cells of which the runs of layers alone count."""
    stage_arcs = [StageArcs(*np.array(own, dtype=np.int64).T) for own in runs]
    return cast(
        LayerGroups, SimpleNamespace(contents=tuple(contents), stage_arcs=tuple(stage_arcs))
    )


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 3), st.floats(0.2, 1.0))
def test_the_least_path_costs_what_the_best_of_all_does(
    seed: int, stages: int, more: int, share: float
) -> None:
    """Runs of a random share of all, each of cells at random; every path is added up."""
    source = np.random.default_rng(seed)
    layers = stages + more
    contents: list[StageContent] = []
    runs: Runs = []
    seconds = source.random(6).tolist()
    path = (0, *sorted(source.choice(range(1, layers), stages - 1, False).tolist()), layers)
    for stage, own in enumerate(pairwise(path)):
        kept = {own: None}
        for start, stop in combinations(range(layers + 1), 2):
            ends = (start == 0, stop == layers) == (stage == 0, stage == stages - 1)
            if ends and source.random() < share:
                kept[start, stop] = None
        reached = {0} if not runs else {stop for _, stop, _ in runs[-1]}
        rows = []
        for start, stop in kept:
            if start in reached:
                rows.append((start, stop, len(contents)))
                held = source.integers(1, 4, 2).tolist()
                numbers = source.choice(6, 2, False).tolist()
                contents.append(StageContent(stage, tuple(zip(numbers, held, strict=True))))
        runs.append(rows)
    content_s = [sum(n * seconds[cell] for cell, n in own.layers) for own in contents]
    paths = [
        sum(content_s[number] for *_, number in each)
        for each in product(*runs)
        if all(a[1] == b[0] for a, b in pairwise(each))
    ]
    assert _shortest_path(flowing(contents, runs), seconds) == pytest.approx(
        min(paths), rel=ROUNDING
    )


def test_no_runs_cost_nothing() -> None:
    assert _shortest_path(flowing([], []), []) == 0.0


@pytest.fixture(scope="module")
def place() -> PipelineBounds:
    space = real_space("llama-2-7b", "8x8xH100-80GB", 512, 4096)
    return parts_of(space).bounds.relaxations.pipeline(PipelineShape(2, 32, "1f1b", 1, 64))


def short(place: PipelineBounds, blocks: int) -> PipelineBounds:
    """The place of a shorter model."""
    layer_classes = (place.layer_classes[0], *[place.main_class] * blocks, place.layer_classes[-1])
    return PipelineBounds(place.tables, layer_classes, place.slowdown, place._message_s)


@pytest.mark.parametrize("kind", ["1f1b", "zero_bubble"])
@pytest.mark.parametrize(("blocks", "stages"), [(4, 2), (6, 3), (8, 4), (5, 7)])
def test_balanced_cuts_have_the_least_in_their_fullest_stage(
    place: PipelineBounds, kind: str, blocks: int, stages: int
) -> None:
    """Against every cut, each layer at what the pool's prices say that it costs."""
    bounds = short(place, blocks)
    shape = PipelineShape(stages, 32, kind, 1, 64)  # type: ignore[arg-type]
    budget = (1.5 * bounds.least_bytes / stages,)
    cost = bounds.aggregated.of(AggregateKey(stages, 64, budget, False))[1]
    boundaries = bounds.balanced_boundaries(shape, budget)
    layers = len(bounds.layer_classes)

    def fullest(points: tuple[int, ...]) -> float:
        each = [bounds.layer_classes[a:b] for a, b in pairwise(points)]
        return max(sum(max(cost.seconds[kind], 0.0) for kind in own) for own in each)

    assert boundaries is not None
    assert (boundaries[0], boundaries[-1], len(boundaries)) == (0, layers, stages + 1)
    assert all(a < b for a, b in pairwise(boundaries))
    inner = combinations(range(1, layers), stages - 1)
    best_s = min(fullest((0, *each, layers)) for each in inner)
    assert best_s > 0
    assert fullest(tuple(boundaries)) == pytest.approx(best_s, rel=ROUNDING)


@pytest.mark.parametrize("kind", ["1f1b", "zero_bubble"])
@pytest.mark.parametrize("stages", [2, 3])
def test_fewer_runs_bound_no_less(place: PipelineBounds, stages: int, kind: str) -> None:
    """The relaxed layers are as many as the model has, whichever runs are mixed."""
    bounds = short(place, 6)
    shape = PipelineShape(stages, 32, kind, 1, 64)  # type: ignore[arg-type]
    budget = (4 * bounds.least_bytes / stages,)
    first = bounds.relaxed(shape, budget, LONG_S)
    best_s, mixed = first.seconds, 0
    for share in (2.0, 1.5, 1.2, 1.1, 1.0, 0.9):
        enough_s = share * first.seconds
        found = bounds.relaxed(shape, budget, enough_s)
        least_s = min(found.seconds, enough_s)
        assert least_s >= min(best_s, enough_s) * (1 - BOUND_TOLERANCE)
        best_s = max(best_s, least_s)
        if found.mix is not None:
            mixed += 1
            assert sum(sum(own.values()) for own in found.mix) == pytest.approx(
                len(bounds.layer_classes)
            )
    assert mixed
