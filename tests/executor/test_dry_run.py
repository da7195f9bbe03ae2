"""Steps without contents: the collectives and bytes of a run, at any size and number of ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
import torch
from checks.lowering_check import executor_stack
from generators.family_cases import FamilyCase, bert, t5, vit
from generators.plan_cases import Case, Sizes, random_case, sharded
from ranks.expert_runs import MIXTRAL, spread
from ranks.rank_jobs import make_engine, recorded_step

from shardwright.costmodel.lowering.step_work import step_work
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.executor.train.dry_run import dry_run
from shardwright.spec.codec import canonical_json
from shardwright.spec.model.model_spec import ModelSpec
from shardwright.spec.plan.plan import Plan
from shardwright.spec.plan.relative_position_bias import table_blocks
from shardwright.spec.report.work_items import Collective
from shardwright.spec.strategy import LayerStrategy

FakeRanks = Callable[[int, int], AbstractContextManager[None]]
SIZES = Sizes(blocks=4, hidden=64, heads=8, kv_heads=8, ffn=128, vocab=512)
LARGE = Sizes(blocks=8, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter({tuple(v for k, v in row.items() if k != "count"): row["count"] for row in rows})


def recorded(plan: Plan, rank: int, fake_ranks: FakeRanks) -> Counter[tuple[Any, ...]]:
    """The collectives of a step with contents."""
    ranks = sum(stage.device_count for stage in plan.program.stages)
    with fake_ranks(rank, ranks):
        flash = not table_blocks(plan.model)  # no flash kernel learns biases
        found = recorded_step(make_engine(plan, rank, torch.device("cpu"), flash))
    return Counter({tuple(collective): count for collective, count in found["collectives"]})


@pytest.mark.parametrize("seed", range(6))
def test_collectives_are_those_of_a_step_with_contents(seed: int, fake_ranks: FakeRanks) -> None:
    case = random_case(seed, ranks=16, stages=(1, 2, 4)[seed % 3], sizes=SIZES)
    plan = case.plan()
    for row in dry_run(plan, case.flash):
        assert counted(row["collectives"]) == recorded(plan, row["rank"], fake_ranks)


TP2_ZERO3 = sharded("zero3", 2, tp=2)
ULYSSES_RING = LayerStrategy(tp=2, cp=2, sequence_parallel="ulysses")


@pytest.mark.parametrize(
    ("model", "strategy"),
    [(bert, TP2_ZERO3), (vit, TP2_ZERO3), (t5, TP2_ZERO3), (bert, ULYSSES_RING)],
)
def test_encoders_are_rehearsed_as_they_step(
    model: Callable[[], ModelSpec], strategy: LayerStrategy, fake_ranks: FakeRanks
) -> None:
    plan = FamilyCase(name="", model=model(), strategies=strategy).plan()
    for row in dry_run(plan):
        assert counted(row["collectives"]) == recorded(plan, row["rank"], fake_ranks)


@pytest.mark.parametrize(
    "strategy",
    [LayerStrategy(ep=2), LayerStrategy(ep=2, etp=2), LayerStrategy(etp=2, recompute="full")],
    ids=["ep2", "ep2 etp2", "etp2 full"],
)
def test_experts_are_rehearsed_under_an_even_load(strategy: LayerStrategy) -> None:
    """As the lowering prices them: what a run moves depends on what its tokens choose."""
    plan = spread(Case(name="", sizes=MIXTRAL), strategy).plan()
    (row,) = dry_run(plan)
    work = step_work(plan, executor_stack(True), 0)
    lowered = Counter(tuple(item) for item in work if isinstance(item, Collective))
    assert counted(row["collectives"]) == lowered


@pytest.mark.parametrize("kind", ["1f1b", "gpipe"])
def test_many_micro_batches_are_reckoned_from_few(kind: Any, fake_ranks: FakeRanks) -> None:
    """The steps that are taken are shorter than the plan's."""
    case = Case(
        name=kind,
        kind=kind,
        stages=2,
        sizes=SIZES,
        global_batch=26,
        micro_batch=2,
        strategies=sharded("zero2", 2),
    )
    plan = case.plan()
    for row in dry_run(plan):
        assert counted(row["collectives"]) == recorded(plan, row["rank"], fake_ranks)


@pytest.mark.parametrize(
    "case",
    [
        Case(name="zero3", ranks=64, strategies=sharded("zero3", 64), micro_batch=64),
        Case(name="1f1b", ranks=16, stages=4, micro_batch=4, strategies=sharded("zero1", 4)),
    ],
    ids=lambda case: case.name,
)
def test_the_peak_of_a_large_model_is_the_predicted_one(case: Case) -> None:
    """No rank of this size fits this machine, and none is made."""
    batch = 8 * case.micro_batch
    plan = replace(case, sizes=LARGE, seq_len=2048, global_batch=batch).plan()
    rows = dry_run(plan)
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), executor_stack(case.flash))
    memory = simulator.run(plan).memory
    for row in rows:
        predicted = memory[row["stages"][0]].allocated_bytes
        assert row["peak_bytes"] == pytest.approx(predicted, rel=1e-2), row["stages"]
    assert sum(len(row["stages"]) for row in rows) == case.stages


def test_as_a_command_it_reads_a_plan_and_writes_json() -> None:
    plan = Case(name="command", sizes=SIZES).plan()
    done = subprocess.run(
        [sys.executable, "-m", "shardwright.executor.train.dry_run"],
        input=canonical_json(plan),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(dry_run(plan)))


def test_as_a_command_it_refuses_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shardwright.executor.train.dry_run"],
        input="{}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
