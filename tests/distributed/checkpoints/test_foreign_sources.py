"""Other frameworks' checkpoints under plans of real ranks: bit-equal, and their next losses."""

from __future__ import annotations

from pathlib import Path

import pytest
from generators.plan_cases import sharded
from ranks.foreign_samples import DONE, FOLDER, SAMPLES, expected, next_steps, sample_plan
from ranks.rank_pools import RankPool
from safetensors.torch import save_file

from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
JOB, SAME = "ranks.foreign_jobs:go_on", 1e-5
FOUR: dict[str, Plan] = {
    "tp 2, dp 2": sample_plan(
        ranks=4, strategies=LayerStrategy(tp=2, sequence_parallel="megatron")
    ),
    "zero3": sample_plan(ranks=4, strategies=sharded("zero3", 4)),
    "pp 2, zero1": sample_plan(
        ranks=4, stages=2, boundaries=(2,), micro_batch=2, strategies=sharded("zero1", 2)
    ),
}
THREE = sample_plan(ranks=3, stages=3, boundaries=(1, 2), micro_batch=2)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("kind", FOUR)
def test_four_ranks_go_on(name: str, kind: str, four_ranks: RankPool, tmp_path: Path) -> None:
    _goes_on(name, FOUR[kind], four_ranks, tmp_path)


def test_three_ranks_go_on(three_ranks: RankPool, tmp_path: Path) -> None:
    _goes_on(SAMPLES[0], THREE, three_ranks, tmp_path)


def _goes_on(name: str, plan: Plan, pool: RankPool, folder: Path) -> None:
    later, values = next_steps(name), expected(name)
    save_file({key: value.contiguous() for key, value in values.items()}, folder / "expected")
    payload = {
        "plan": plan.to_document(),
        "folder": str(FOLDER / name),
        "tokens": later["tokens"],
        "done": DONE,
        "expected": str(folder / "expected"),
    }
    rows = pool.run(JOB, payload)
    assert not [wrong for row in rows for wrong in row["wrong"]]
    assert sum(row["seen"] for row in rows) >= sum(value.numel() for value in values.values())
    assert all(row["step"] == DONE for row in rows)
    assert rows[0]["losses"] == pytest.approx(later["losses"], rel=SAME)
