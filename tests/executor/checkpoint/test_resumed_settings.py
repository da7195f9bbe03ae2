"""What is published as good, and what a run that goes on does otherwise."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks.checkpoint_files import RUN
from ranks.checkpoint_matrix import Cell

from shardwright.executor.checkpoint.changed_settings import changed_settings
from shardwright.executor.checkpoint.manifest import RunFacts
from shardwright.executor.checkpoint.saver import Saver
from shardwright.executor.checkpoint.session import run_facts
from shardwright.executor.checkpoint.storage.folders import step_folders
from shardwright.executor.checkpoint.tensor_slices import TensorSlice
from shardwright.executor.engine.optimizer_step import AdamWOptions
from shardwright.spec.errors import RunError

PLAN = Cell("dp", 1).plan()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("model.a", float("nan"), "model.a is not finite"),
        ("model.a", float("inf"), "model.a is not finite"),
        ("model.a", -1e30, r"model.a has a value of 1.0e\+30, whose square is not finite"),
        ("optimizer.exp_avg_sq.a", float("inf"), "exp_avg_sq.a is not finite"),
    ],
)
def test_a_state_that_is_not_finite_is_never_good(
    tmp_path: Path, name: str, value: float, says: str
) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        own = Saver(tmp_path, 3, RUN, 0, torch.device("cpu"), wait=True)
        good = {name: TensorSlice.unsplit(torch.tensor([1.0, 2.0]))}
        own.save(1, good)
        good[name].tensor[1] = value
        with pytest.raises(RunError, match=rf"^the checkpoint of step 2: rank 0 .*{says}"):
            own.save(2, good)
    finally:
        dist.destroy_process_group()
    assert [folder.name for folder in step_folders(tmp_path)] == ["step-00000001"]


def facts(**changed: float) -> RunFacts:
    """As a manifest gives them back."""
    options = replace(AdamWOptions(), **changed)
    return RunFacts(**json.loads(json.dumps(asdict(run_facts(PLAN, 0, "text", options)))))


def test_each_changed_setting_is_named() -> None:
    dtype = replace(PLAN.workload.dtype, param="bf16")
    workload = replace(PLAN.workload, dtype=dtype, gradient_clip_norm=None)
    other = replace(PLAN, workloads={"main": workload})
    now = run_facts(other, 0, "text", replace(AdamWOptions(), learning_rate=0.5))
    said = changed_settings(facts(learning_rate=0.25), now)
    assert said[0] == "optimizer.learning_rate is 0.5, and was 0.25 in the checkpoint"
    assert said[1] == "workload.dtype.param is bf16, and was fp32 in the checkpoint"
    assert said[2] == "workload.gradient_clip_norm is None, and was 1.0 in the checkpoint"
    assert len(said) == 3
    assert changed_settings(facts(), run_facts(PLAN, 0, "text", AdamWOptions())) == []
    assert changed_settings(RUN, replace(RUN, workload={"task": "sft"})) == []
