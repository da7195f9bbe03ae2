"""Deadlines, lazy bounds and steps too long to simulate: what a search does within limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from generators.catalogue_problems import space as real_space
from generators.samples import random_problem
from published.planning import parts_of, search_of

from shardwright.planner.candidates.evaluator import PlanHashOrder
from shardwright.planner.search import branch_and_bound as search_module
from shardwright.planner.search import incumbents as trials_module
from shardwright.planner.search import refined_bounds as bounds_module
from shardwright.planner.search.build import single_group_search
from shardwright.planner.search.node_queue import NodeQueue
from shardwright.planner.search.work_limits import Limits
from shardwright.planner.space import search_space as space_module
from shardwright.planner.space.pins import Pin
from shardwright.planner.space.pipeline_shape import PipelineShape
from shardwright.planner.space.search_space import SearchSpace
from shardwright.spec.errors import InfeasibleError
from shardwright.spec.limits import MAX_PASSES
from shardwright.spec.plan.plan import Plan


@pytest.mark.parametrize("seed", range(12))
def test_quick_bounds_are_never_above_exact_ones(seed: int) -> None:
    bounds = parts_of(random_problem(seed)).bounds
    shapes = list(bounds.tables.space.shapes())
    floor = bounds.quick.compute.floor()
    assert shapes
    for shape in shapes:
        exact, quick = bounds.exact_s(shape), bounds.quick_s(shape)
        assert 0 < floor <= quick * (1 + 1e-9)
        assert quick <= exact


@pytest.mark.parametrize(
    ("model", "cluster", "batch", "seq_len"),
    [
        pytest.param("gpt2-xl", "2x8xA100-80GB", 96, 1024, marks=pytest.mark.evidence),
        ("llama-2-7b", "2x8xH100-80GB", 48, 4096),
    ],
)
def test_quick_bounds_of_real_models(model: str, cluster: str, batch: int, seq_len: int) -> None:
    bounds = parts_of(real_space(model, cluster, batch, seq_len)).bounds
    shapes = list(bounds.tables.space.shapes())
    pairs = [(bounds.quick_s(s), bounds.exact_s(s)) for s in shapes[::23]]
    assert len(pairs) > 50
    assert all(0 < bounds.quick.compute.floor() <= quick <= exact for quick, exact in pairs)


def test_lazy_order_is_that_of_exact_bounds_and_needs_few_of_them() -> None:
    exact = [5.0, 1.0, 3.0, 3.0, 9.0, 1.0]
    for_request: list[int] = []

    def ask(number: int) -> float:
        for_request.append(number)
        return exact[number]

    shapes = NodeQueue([(bound / 2, n) for n, bound in enumerate(exact)], ask)
    assert shapes.least == 0.5
    assert [shapes[0], shapes[1]] == [(1.0, 1), (1.0, 5)]
    assert set(for_request) == {1, 5}
    assert shapes[:] == sorted((bound, n) for n, bound in enumerate(exact))
    assert sorted(for_request) == list(range(6))
    assert (len(shapes), shapes.least) == (6, 1.0)
    with pytest.raises(IndexError):
        shapes[6]


@pytest.fixture(scope="module")
def reference_s() -> float:
    """Best time that a search without a deadline finds for the deadline test."""
    return (
        search_of(real_space("gpt2-xl", "4x8xA100-80GB", 128, 1024)).run().outcomes[0].step_time_s
    )


class Clock:
    """Seconds that pass by one each time that somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


@pytest.mark.parametrize("deadline_s", [1, 5, 100, 1000])
def test_a_deadline_ends_the_search_soon_with_a_plan_and_a_sound_bound(
    deadline_s: int, reference_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that counts looks: after the deadline nobody works on without an answer."""
    space = real_space("gpt2-xl", "4x8xA100-80GB", 128, 1024)
    clock = Clock()
    for module in (search_module, trials_module):
        monkeypatch.setattr(module, "time", clock)
    found = search_of(space, Limits(deadline_s=deadline_s)).run()
    assert found.stopped_by == "deadline"
    assert clock.now <= deadline_s + 60
    best = found.outcomes[0]
    assert best.feasible
    assert not best.plan.check()
    assert best.decision.shape in found.shapes
    known_s = min(best.step_time_s, reference_s)
    assert 0 < found.lower_bound_s <= known_s * (1 + 1e-9)


def test_a_deadline_that_comes_while_shapes_are_listed_is_heeded() -> None:
    """Half a second for a space whose bounds alone take many: seconds are only roughly held."""
    space = real_space("gpt3-175b", "128x8xA100-80GB", 1536, 2048)
    search = search_of(space, Limits(deadline_s=0.5))
    before = time.process_time()
    found = search.run()
    assert time.process_time() - before < 5
    assert found.stopped_by == "deadline"
    assert found.outcomes[0].feasible
    assert 0 < found.lower_bound_s < found.outcomes[0].step_time_s


def test_a_deadline_before_any_plan_fits_says_so() -> None:
    space = real_space("gpt3-175b", "1x8xA100-80GB", 64, 2048)
    with pytest.raises(InfeasibleError, match=r"before the deadline.*--deadline"):
        search_of(space, Limits(deadline_s=1e-6)).run()


def test_ctrl_c_while_shapes_are_bounded_gives_what_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = search_of(real_space("gpt2-xl", "8xA100-80GB", 64, 1024), Limits(deadline_s=1e9))

    def interrupt(self: SearchSpace) -> Iterator[None]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(SearchSpace, "shapes", interrupt)
    found = search.run()
    assert search.interrupted
    assert found.stopped_by == "deadline"
    assert 0 < found.lower_bound_s <= found.outcomes[0].step_time_s


def test_where_layers_have_many_options_a_wider_proof_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = real_space("llama-3-8b", "1x8xH100-80GB", 64, 8192)
    near = search_of(space).run()
    monkeypatch.setattr(bounds_module, "MANY_OPTIONS", 1)
    monkeypatch.setattr(bounds_module, "MANY_WITHIN", 0.1)
    wide = search_of(space).run()
    best_s = near.outcomes[0].step_time_s
    assert wide.outcomes[0].step_time_s <= best_s * 1.1
    assert best_s * 0.89 < wide.lower_bound_s < near.lower_bound_s <= best_s


def test_more_memory_is_asked_at_the_same_prices() -> None:
    """What another memory's search takes over is what it would have found by itself."""
    few = real_space("gpt2", "8xA100-40GB", 64, 1024)
    more = few.with_memory(50_000_000_000)
    whole = search_of(few)
    whole.run()
    again = single_group_search(
        whole.evaluator.for_request(search_of(more).request), Limits()
    ).run()
    alone = search_of(more).run()
    assert [o.step_time_s for o in again.outcomes] == [o.step_time_s for o in alone.outcomes]
    assert [o.plan.hash for o in again.outcomes] == [o.plan.hash for o in alone.outcomes]
    assert again.lower_bound_s == alone.lower_bound_s


def test_plans_that_tie_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    search = search_of(real_space("gpt2", "8xA100-40GB", 64, 1024))
    plan = search.run().outcomes[0].plan
    hashed: list[Plan] = []

    def told(self: Plan) -> str:
        hashed.append(self)
        return f"{len(hashed) * 7919 % 64:02}"

    monkeypatch.setattr(Plan, "hash", property(told))
    tied = [PlanHashOrder(plan) for _ in range(64)]
    backwards = tied[::-1]
    assert sorted(tied) == sorted(backwards) != tied
    assert len(hashed) == 64


def test_steps_too_long_to_simulate_are_no_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    space = real_space("gpt2-xl", "8xA100-80GB", 64, 1024)
    whole = parts_of(space).bounds.tables.space
    every = list(whole.shapes())
    assert not whole.too_long
    assert all("passes" not in item["what"] for item in whole.left_out(has_solver=True))
    monkeypatch.setattr(space_module, "MAX_PASSES", 64)
    search = search_of(space)
    kept = list(search.space.shapes())
    directions = {"zero_bubble": 3, "zbv": 3, "dualpipe": 3}

    def passes(s: PipelineShape) -> int:
        return directions.get(s.kind, 2) * s.stages * s.chunks * s.microbatches

    assert kept == [s for s in every if passes(s) <= 64]
    assert 0 < len(kept) < len(every)
    assert any(
        "passes in a step" in item["what"] for item in search.space.left_out(has_solver=True)
    )
    assert search.run().outcomes[0].feasible


def test_a_batch_with_too_many_micro_batches_is_searched_all_the_same() -> None:
    """Pinned to few shapes; the batch alone allows steps of more passes than are simulated."""
    space = real_space("gpt2", "8xA100-80GB", 2**20, 1024)
    search = search_of(space)
    pins = (Pin(key="pp", value=8), Pin(key="schedule", value="1f1b"))
    request = replace(search.request, pins=pins)
    counts = [s.microbatches for s in SearchSpace(request).shapes()]
    assert max(counts) == 2**17
    limited = SearchSpace(request)
    assert [s for s in limited.shapes() if s.passes > MAX_PASSES] == []
    assert limited.too_long
