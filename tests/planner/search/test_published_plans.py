"""Our plans beside what others published: under the same prices none may be slower.

A test of the search, not evidence for the prices. Every so many rows; all of them are in
`benchmarks/items/planner/published_picks.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from published.published_groups import Pick, groups, pick_of, regret
from published.published_plans import (
    PUBLISHERS,
    adds_up,
    configuration,
    gains,
    pins_of,
    published,
    searched,
    seconds_of,
)

from shardwright.api.validation.priced_run import price_run
from shardwright.api.validation.scores import order_scores
from shardwright.costmodel.explain.accuracy import LEAST_LAYOUTS
from shardwright.datasets.published.runs import PublishedRun, published_runs

FIRST, EVERY = 20, 30
"""Rows of about a tenth of the questions, among the quickest to plan."""
RUNS = {run.id: run for run in published_runs()}
SOME = [run for publisher in PUBLISHERS for run in published(publisher)][FIRST::EVERY]


@pytest.mark.parametrize("run", SOME, ids=lambda run: run.id)
def test_ours_is_no_slower_than_a_published_plan_that_fits(run: PublishedRun) -> None:
    one = configuration(run, as_kept=True)
    ours, theirs = searched(one.problem), one.theirs
    assert ours is not None
    assert theirs is not None
    assert seconds_of(ours) <= seconds_of(theirs) * (1 + 1e-9)
    gained = gains(ours, theirs)
    assert adds_up(gained, ours, theirs)
    assert not adds_up({**gained, "matmul": gained["matmul"] + 1e-3}, ours, theirs)


def test_a_row_is_completed_with_all_that_it_prints() -> None:
    run = RUNS["bridge-0106"]
    one = configuration(run, as_kept=True)
    assert one.pins == ("tp=2", "pp=8", "vpp=4", "cp=1", "dp=16", "micro_batch=1", "ep=32")
    assert one.completed is not None
    program = one.completed.plan.program
    assert (len(program.stages), program.chunks_per_stage) == (8, 4)
    assert program.schedule.micro_batch == 1
    for layer in one.completed.plan.layer_strategies():
        assert (layer.tp, layer.cp) == (2, 1)
        assert layer.ep in (1, 32)
    assert {layer.ep for layer in one.completed.plan.layer_strategies()} == {1, 32}


def test_printed_sharding_and_recomputation_are_pinned_too() -> None:
    assert "shard=zero3" in pins_of(RUNS["bridge-0074"], model_has_experts=False)
    row = next(run for run in RUNS.values() if run.source_name == "vtrain_multi")
    assert configuration(row).pins[-1] == "recompute=full"


def test_what_a_source_keeps_in_memory_makes_adapters_fit() -> None:
    run = next(run for run in published("MLPerf") if run.gpus == 8 and run.tp == 4)
    plain, kept = (configuration(run, as_kept=known) for known in (False, True))
    assert not plain.as_read.prediction.feasible
    assert kept.as_read.prediction.feasible


def test_groups_are_those_that_validate_ranks() -> None:
    (group,) = (group for group in groups() if group.source == "vtrain_multi")
    rows = [run for run in RUNS.values() if run.source_name == "vtrain_multi"]
    scores = order_scores([price_run(run) for run in rows])
    assert scores["groups"] == 1
    assert len(group.layouts) >= LEAST_LAYOUTS
    assert {run.id for layout in group.layouts for run in layout} == {run.id for run in rows}


def test_the_pick_is_the_fastest_predicted_that_fits() -> None:
    slow = Pick(layout="tp=1", measured_s=2.0, predicted_s=2.5, as_read_s=2.5)
    fast = Pick(layout="tp=2", measured_s=1.0, predicted_s=3.0, as_read_s=2.0)
    over = Pick(layout="tp=4", measured_s=1.5, predicted_s=None, as_read_s=1.0)
    every = (slow, fast, over)
    assert pick_of(every) is slow
    assert regret(slow, every) == 1.0
    assert pick_of(every, as_read=True) is over
    assert pick_of([over]) is None
    assert regret(replace(fast, predicted_s=1.0), every) == 0.0
