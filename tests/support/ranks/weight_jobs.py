"""What ranks do in tests of checkpoints; each function is a job that every rank calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from shardwright.executor.data.text import RandomBatches
from shardwright.executor.engine.engine import Engine
from shardwright.executor.huggingface.logits import local_logits
from shardwright.executor.huggingface.reader import HuggingFaceCheckpoint
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.stage import initial_weights
from shardwright.executor.stage.options import BuildOptions
from shardwright.executor.techniques import SHIPPED
from shardwright.executor.train.job import train
from shardwright.spec.model.layer_parameters import ParameterSpec
from shardwright.spec.plan.plan import plan_of


def logits(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """A rank's samples of a micro-batch and their logits; ``steps`` are run first."""
    plan = plan_of(payload["plan"], "plan")
    workload = plan.workload
    values = HuggingFaceCheckpoint(Path(payload["init_from"]), plan.model, workload.seq_len)
    options = BuildOptions(
        seed=0,
        device=context.device,
        flash=True,
        prefetch=False,
        techniques=SHIPPED,
        weight_source=values,
    )
    batches = RandomBatches(plan.model.vocab, workload.seq_len, workload.global_batch, seed=0)
    engine = Engine(plan, context.rank, options, batches)
    tokens = torch.tensor(payload["tokens"])
    try:
        for _ in range(payload.get("steps", 0)):
            local_logits(engine, tokens)  # between two steps it leaves nothing behind
            engine.step()
        span, found = local_logits(engine, tokens)
    finally:
        engine.close()
    return {"first": span.first, "logits": found.tolist()}


def with_filled_adapters(context: RankContext, payload: dict[str, Any]) -> Any:
    """Another job in which every B begins at random: at zero no gradient reaches an A."""
    original = initial_weights.initial_value

    def filled(spec: ParameterSpec, name: str, seed: int) -> torch.Tensor:
        if spec.name.endswith(".adapter_b"):
            spec = replace(spec, initial="normal")
        return original(spec, name, seed)

    initial_weights.initial_value = filled
    try:
        return train(context, payload)
    finally:
        initial_weights.initial_value = original
