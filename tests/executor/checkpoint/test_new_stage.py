"""A new stage: weights and moments of a checkpoint under another length, text and seed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks.foreign_samples import DONE, FOLDER, SAMPLES, sample_plan

import shardwright as sw
from shardwright.executor.checkpoint.foreign.weights import ForeignWeights
from shardwright.executor.checkpoint.manifest import read_manifest
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.stage.weight_source import full_ranges
from shardwright.executor.train.job import train
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan

SHORT, LONG = sample_plan(ranks=1), sample_plan(ranks=1, seq_len=32)
TINY = {"peak": 1e-30}
Train = Callable[..., dict[str, Any]]


@pytest.fixture
def go() -> Iterator[Train]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def run(plan: Plan, steps: int, **settings: Any) -> dict[str, Any]:
        context = RankContext(0, 1, torch.device("cpu"), 60.0, lambda _: None)
        given = {"steps": steps, "random_tokens": True, "follow_bytes": False, **settings}
        result = train(context, {**given, "plan": plan.to_document()})
        assert result is not None
        return result

    yield run
    dist.destroy_process_group()


def test_the_first_loss_is_that_of_the_weights(go: Train, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    go(SHORT, 3, checkpoint={"folder": str(first)})
    other = {"seed": 5}
    new = {"folder": str(second), "resume": str(first), "new_stage": True}
    found = go(LONG, 1, checkpoint=new, **other)
    alone = go(LONG, 1, init_from=str(first), **other)
    losses = [result["measured"]["losses"][0] for result in (found, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    manifest = read_manifest(second / "step-00000001")
    assert manifest.run.previous == {
        "folder": str(first / "step-00000003"),
        "step": 3,
        "of": SHORT.hash,
    }
    counts = [name for name in manifest.tensors if name.startswith("optimizer.step.")]
    assert counts


def test_moments_are_kept_bit_for_bit(go: Train, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    go(SHORT, 2, checkpoint={"folder": str(first)})
    still = {"learning_rate": TINY, "weight_decay": 0.0, "beta1": 1.0 - 1e-12, "beta2": 1.0 - 1e-12}
    new = {"folder": str(second), "resume": str(first), "new_stage": True}
    go(LONG, 1, checkpoint=new, adamw=still, seed=5)
    before, after = (ForeignWeights(path, SHORT.model, 16) for path in (first, second))
    for index, spec in before.parameters():
        whole = full_ranges(spec)
        assert torch.equal(
            before.read_range(index, spec, whole), after.read_range(index, spec, whole)
        )
        for key in ("exp_avg", "exp_avg_sq"):
            pair = [source.read_state(key, index, spec, whole) for source in (before, after)]
            assert torch.allclose(*pair, rtol=1e-5, atol=1e-9)


def test_without_it_another_length_is_refused(go: Train, tmp_path: Path) -> None:
    go(SHORT, 1, checkpoint={"folder": str(tmp_path)})
    with pytest.raises(InputError, match="new-stage"):
        go(LONG, 2, checkpoint={"resume": str(tmp_path)})


def test_it_needs_a_checkpoint(go: Train) -> None:
    with pytest.raises(InputError, match="--resume"):
        go(LONG, 2, checkpoint={"new_stage": True})


@pytest.mark.parametrize("name", SAMPLES[:1])
def test_a_foreign_checkpoint_resumes_and_saves(name: str, go: Train, tmp_path: Path) -> None:
    asked = {"resume": str(FOLDER / name), "folder": str(tmp_path)}
    found = go(SHORT, DONE + 2, checkpoint=asked, verify=True)
    assert found["checkpoint"]["resumed"]["step"] == DONE
    assert len(found["measured"]["losses"]) == 2
    assert (tmp_path / f"step-{DONE + 2:08d}").is_dir()
    with pytest.raises(InputError, match="--steps"):
        go(SHORT, DONE, checkpoint={"resume": str(FOLDER / name)})


def test_ranks_of_torchrun_and_python_take_it(tmp_path: Path) -> None:
    from shardwright.executor import worker

    given = worker._parser().parse_args(["plan.json", "--resume", "run", "--new-stage"])
    assert worker._checkpoint_payload(given)["new_stage"] is True
    assert "new_stage" in inspect.signature(sw.execute).parameters
    alone = worker._parser().parse_args(["plan.json"])
    assert worker._checkpoint_payload(alone)["new_stage"] is False
