"""Checkpoints of real ranks: bit-equal under the same plan, and good under any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ranks.checkpoint_files import flip
from ranks.checkpoint_matrix import SAME_BOUND, Cell, apart, payload, resumed, run_on, save
from ranks.rank_pools import RankPool

from shardwright.executor.checkpoint.manifest import read_manifest
from shardwright.executor.checkpoint.storage.folders import step_folders
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.errors import RunError


@pytest.fixture
def pools(
    one_rank: RankPool, two_ranks: RankPool, three_ranks: RankPool, four_ranks: RankPool
) -> dict[int, RankPool]:
    return {1: one_rank, 2: two_ranks, 3: three_ranks, 4: four_ranks}


ROUTES = [
    (Cell("zero3", 4), (Cell("tp", 3), Cell("pp", 2))),
    (Cell("pp", 3), (Cell("mixed", 4), Cell("dp", 1))),
    (Cell("mixed", 4), (Cell("tp", 2), Cell("zero1", 3))),
    (Cell("tp", 2), (Cell("zero3", 3), Cell("pp", 4))),
    (Cell("dp", 1), (Cell("mixed", 3), Cell("tp", 4))),
]
EXPERT_ROUTES = [
    (Cell("ep", 4, True), (Cell("ep", 3, True), Cell("mixed", 4, True))),
    (Cell("mixed", 2, True), (Cell("ep", 4, True), Cell("pp", 3, True))),
    (Cell("dp", 1, True), (Cell("ep", 2, True), Cell("tp", 4, True))),
]


@pytest.mark.parametrize(("cell", "others"), ROUTES + EXPERT_ROUTES, ids=lambda value: str(value))
def test_a_run_goes_on_under_its_plan_and_others(
    pools: dict[int, RankPool], tmp_path: Path, cell: Cell, others: tuple[Cell, ...]
) -> None:
    run = run_on(pools)
    saved = save(run, cell, tmp_path)
    assert [x.hex() for x in resumed(run, cell, saved)] == [x.hex() for x in saved.losses]
    for other in others:
        assert apart(resumed(run, other, saved), saved.losses) <= SAME_BOUND, str(other)
    if cell.model.tie_embeddings:
        tied = read_manifest(saved.folder).tensors
        assert "model.layers.0.tokens.weight" in tied
        assert "model.layers.7.projection.weight" not in tied


def train(pool: RankPool, asked: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Result and the lines that were said."""
    events: list[dict[str, Any]] = []
    result = pool.run(TRAIN_JOB, asked, on_event=lambda rank, event: events.append(event))[0]
    return result, [event["text"] for event in events if event["event"] == "note"]


CELL = Cell("zero1", 2)


def test_a_resumed_run_is_verified_from_where_it_goes_on(
    two_ranks: RankPool, tmp_path: Path
) -> None:
    train(two_ranks, payload(CELL, 3, folder=str(tmp_path)))
    for cell in (CELL, Cell("tp", 2)):
        asked = payload(cell, 6, resume=str(tmp_path))
        result, _ = train(two_ranks, {**asked, "verify": True})
        found = result["verify"]
        assert 0 < found["max_rel_grad_diff"] <= found["bounds"]["gradient"]
        assert found["max_rel_loss_diff"] <= found["bounds"]["loss"]
        assert len(result["measured"]["losses"]) == 3


def test_a_damaged_checkpoint_is_told_of_and_the_one_before_taken(
    two_ranks: RankPool, tmp_path: Path
) -> None:
    pool = two_ranks
    whole, _ = train(pool, payload(CELL, 6, folder=str(tmp_path), every=2))
    newest, older, _ = step_folders(tmp_path)
    tensor = "optimizer.exp_avg.layers.3.up.weight"
    part = read_manifest(newest).tensors[tensor].parts[0]
    flip(newest / part.file, part.first_byte + 5, 3)
    result, said = train(pool, payload(CELL, 8, resume=str(tmp_path)))
    assert said == [
        f"checkpoint {newest.name} is damaged ({part.file}, {tensor}: its bytes are not those that "
        "were written); trying the one before it",
        f"going on after step 4 from {older}",
    ]
    losses = result["measured"]["losses"]
    assert [x.hex() for x in losses[:2]] == [x.hex() for x in whole["measured"]["losses"][4:]]
    for folder in step_folders(tmp_path):
        (folder / "manifest.json").write_text("{}")
    with pytest.raises(RunError, match=r"^no good checkpoint in .*the newest, step-00000006, is"):
        train(pool, payload(CELL, 8, resume=str(tmp_path)))


def test_a_killed_run_loses_no_more_than_an_interval(tmp_path: Path) -> None:
    """Killed by its own hand at a step of our choice, and gone on with by other ranks."""
    with RankPool(2) as pool:
        cell = Cell("pp", 2)
        whole, _ = train(pool, payload(cell, 10))
        asked = payload(cell, 10, folder=str(tmp_path), every=3, wait=True)
        fault = {"rank": 1, "step": 8, "how": "kill", "at": "update"}
        with pytest.raises(RunError, match=r"^rank 1 was killed by SIGKILL in "):
            train(pool, {**asked, "faults": [fault]})
        asked["checkpoint"]["resume"] = str(tmp_path)
        result, _ = train(pool, asked)
        assert result["checkpoint"]["resumed"]["step"] == 6
        assert result["checkpoint"]["saved"]["steps"] == [9, 10]
        expected = whole["measured"]["losses"][6:]
        assert [x.hex() for x in result["measured"]["losses"]] == [x.hex() for x in expected]
