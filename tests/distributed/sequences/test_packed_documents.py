"""Ranks that mask between documents against a reference that does, by parts of every split."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from generators.plan_cases import Case, Sizes, sharded
from ranks.rank_pools import RankPool

from shardwright.datasets.pipelines.shipped import STAGES
from shardwright.datasets.preparation.document_lengths import document_lengths
from shardwright.datasets.preparation.prepare import prepare
from shardwright.datasets.recipes.recipe import recipe_of
from shardwright.executor.data.records import data_batches, random_batches
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy

TEXT = Sizes(vocab=320, hidden=64, ffn=160)
TOKENS = 64


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared windows of short texts."""
    folder = tmp_path_factory.mktemp("packed")
    records = [{"id": str(n), "text": f"the {n}th text; " * (n % 3 + 1)} for n in range(120)]
    (folder / "part.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    windows = {"tokens": TOKENS, "order": "fit"}
    keys = {"sources": [{"name": "s", "domain": "d", "path": "part.jsonl"}], "windows": windows}
    prepare(recipe_of(keys, "recipe", STAGES), folder, folder / "out", STAGES)
    return folder / "out"


def packed(case: Case, data: Path) -> Plan:
    plan = case.plan()
    workload = replace(plan.workload, lengths=document_lengths(data, case.seq_len))
    return replace(plan, workloads={"main": workload})


@pytest.mark.parametrize(
    "case",
    [
        Case(
            name="pipeline, recomputation, several samples",
            sizes=TEXT,
            seq_len=TOKENS,
            stages=2,
            global_batch=16,
            strategies=replace(sharded("zero2", 2), recompute="full"),
        ),
        Case(
            name="heads and tokens split",
            sizes=TEXT,
            seq_len=TOKENS // 2,
            strategies=LayerStrategy(tp=2, sequence_parallel="ulysses", recompute="selective"),
        ),
    ],
    ids=lambda case: case.name,
)
def test_documents_do_not_see_one_another(four_ranks: RankPool, case: Case, data: Path) -> None:
    plan = packed(case, data)
    losses = []
    for used in (plan, case.plan()):
        payload = {"plan": used.to_document(), "data": str(data), "steps": 3, "verify": True}
        results = four_ranks.run(TRAIN_JOB, payload)
        result = next(found for found in results if found is not None)
        assert result["verify"]["max_rel_grad_diff"] <= 5e-6
        losses.append(result["measured"]["losses"])
    assert abs(losses[0][0] / losses[1][0] - 1) > 1e-5  # the mask is seen


def test_data_without_its_documents_are_refused(data: Path) -> None:
    plan = packed(Case(name="plain", sizes=TEXT, seq_len=TOKENS), data)
    with pytest.raises(InputError, match=r"--data: got nothing; .* plan's recipe sha256:"):
        data_batches(plan, None, None, 0)
    with pytest.raises(InputError, match="plan's recipe sha256:"):
        random_batches(plan, 0)
