"""Bounds of the shapes of a request: what is kept of them, and what is found again."""

from __future__ import annotations

import pytest
from generators.catalogue_problems import space as real_space
from published.planning import parts_of

from shardwright.planner.bounds import shape_relaxations
from shardwright.planner.bounds.shape_relaxations import ShapeRelaxations
from shardwright.planner.space.pipeline_shape import PipelineShape

LONG_S = 1e9


@pytest.fixture
def paths() -> ShapeRelaxations:
    """Nothing is bounded yet."""
    return parts_of(real_space("gpt2-xl", "1x8xA100-80GB", 96, 1024)).bounds.relaxations


def v_shapes(paths: ShapeRelaxations, count: int) -> list[PipelineShape]:
    every = paths._space.shapes()
    found = [s for s in every if s.chunks > 1 and s.stages > 1 and paths.may_build(s)]
    return found[:: max(1, len(found) // count)][:count]


def test_steps_that_were_forgotten_are_found_again(
    paths: ShapeRelaxations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_relaxations, "MAX_STEPS_KEPT", 2)
    shapes = v_shapes(paths, 5)
    assert len(shapes) == 5
    first = [paths.relaxed(shape, LONG_S) for shape in shapes]
    assert [cut is not None and cut.fractional is None for cut in first] == [True] * 3 + [False] * 2
    for shape, cut in zip(shapes[:2], first[:2], strict=True):
        again = paths.relaxed(shape, LONG_S)
        assert again is cut
        assert again is not None
        assert again.fractional is not None
        assert paths.bound(shape, LONG_S) == pytest.approx(again.bound(LONG_S), rel=1e-9)


def test_bounds_grow_with_what_is_asked(paths: ShapeRelaxations) -> None:
    free = [s for s in paths._space.shapes() if s.chunks == 1 and s.stages > 1]
    raised = 0
    for shape in free[:: len(free) // 6]:
        lowest_s = paths._quick_s(shape)
        bounds = [
            paths.bound(shape, lowest_s * times, adds_critical_paths=False)
            for times in (1.0, 1.5, 3.0)
        ]
        assert bounds == sorted(bounds), shape
        assert paths.bound(shape, lowest_s, adds_critical_paths=False) == bounds[-1]
        raised += bounds[-1] > bounds[0] * 1.01
    assert raised


def test_no_tables_are_made_beyond_their_limit(
    paths: ShapeRelaxations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_relaxations, "MAX_OPTIONS", 1)
    first, *others = (s for s in paths._space.shapes() if s.stages > 1)
    assert paths.bound(first) > 0
    unlike = [s for s in others if paths._contexts.of(s).key != paths._contexts.of(first).key]
    assert unlike
    assert not any(paths.bound(shape) for shape in unlike)
    assert len(paths._pipelines) == 1
