"""Checkpoints of encoders and encoder-decoders: every copy of a shared table is one tensor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from generators.family_cases import FamilyCase, bert, t5, vit
from generators.plan_cases import sharded
from ranks.checkpoint_matrix import SAME_BOUND, apart, payload, resumed, run_on, save
from ranks.rank_pools import RankPool

from shardwright.executor.checkpoint.manifest import read_manifest
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.strategy import LayerStrategy

TP2 = LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
BERT, VIT, T5 = (FamilyCase(name=m.name, model=m, flash=False) for m in (bert(), vit(), t5()))
LONE = {"ranks": 1, "strategies": LayerStrategy()}
HALVES = {"stages": 2, "micro_batch": 2}
ROUTES = [
    (
        replace(BERT, strategies=sharded("zero3", 4)),
        replace(BERT, **HALVES, boundaries=(3,), strategies=TP2_SP),
        replace(BERT, **LONE),
    ),
    (
        replace(BERT, ranks=2, **HALVES, boundaries=(2,)),
        replace(BERT, strategies=TP2_SP),
    ),
    (
        replace(VIT, **HALVES, boundaries=(3,), strategies=sharded("zero1", 2)),
        replace(VIT, strategies=TP2),
        replace(VIT, **LONE),
    ),
    (
        replace(T5, stages=4, boundaries=(2, 4, 6), micro_batch=1),
        replace(T5, strategies=sharded("zero3", 4)),
        replace(T5, **HALVES, boundaries=(6,), strategies=TP2_SP),
        replace(T5, **LONE),
    ),
    (
        replace(
            T5, **HALVES, kind="interleaved", boundaries=(2, 4, 6), strategies=sharded("zero2", 2)
        ),
        replace(T5, **HALVES, kind="zbv", boundaries=(2, 4, 6), strategies=TP2),
    ),
    (
        replace(T5, strategies=TP2_SP),
        replace(T5, ranks=2, **HALVES, boundaries=(2,)),
    ),
]


@pytest.fixture
def pools(one_rank: RankPool, two_ranks: RankPool, four_ranks: RankPool) -> dict[int, RankPool]:
    return {1: one_rank, 2: two_ranks, 4: four_ranks}


def held_once(folder: Path) -> set[str]:
    """The shared tables of a checkpoint: those of vocabularies, and of relative positions."""
    names = read_manifest(folder).tensors
    kinds = ("tokens.weight", "projection.weight", "relative.weight")
    return {name for name in names if name.startswith("model.") and name.endswith(kinds)}


TABLES = {
    "bert": {"model.layers.0.tokens.weight"},
    "vit": {"model.layers.5.projection.weight"},
    "t5": {
        "model.layers.0.tokens.weight",
        "model.layers.1.relative.weight",
        "model.layers.5.relative.weight",
    },
}


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r[0].name} {r[0].stages}")
def test_a_run_goes_on_under_its_plan_and_others(
    pools: dict[int, RankPool], tmp_path: Path, route: tuple[FamilyCase, ...]
) -> None:
    run, case = run_on(pools), route[0]
    saved = save(run, case, tmp_path)
    assert [x.hex() for x in resumed(run, case, saved)] == [x.hex() for x in saved.losses]
    for other in route[1:]:
        assert apart(resumed(run, other, saved), saved.losses) <= SAME_BOUND, other
    assert held_once(saved.folder) == TABLES[case.name]


@pytest.mark.parametrize("case", [ROUTES[0][0], ROUTES[2][0], ROUTES[3][0]], ids=lambda c: c.name)
def test_a_resumed_run_is_verified(
    pools: dict[int, RankPool], tmp_path: Path, case: FamilyCase
) -> None:
    run = run_on(pools)
    run(case.ranks, payload(case, 2, folder=str(tmp_path)))
    asked = {**payload(case, 4, resume=str(tmp_path)), "verify": True}
    found = pools[case.ranks].run(TRAIN_JOB, asked)[0]["verify"]
    assert 0 < found["max_rel_grad_diff"] <= found["bounds"]["gradient"]
    assert found["max_rel_loss_diff"] <= found["bounds"]["loss"]
