"""Jobs of ranks that go on from another framework's checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from shardwright.executor.checkpoint.engine_state import collect_state
from shardwright.executor.checkpoint.foreign.restore import restore_foreign
from shardwright.executor.checkpoint.foreign.weights import ForeignWeights
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.train.job import TrainSettings, make_engine
from shardwright.spec.plan.plan import plan_of


def go_on(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Losses of the next steps, and names of what differs from ``expected``, by name, whole."""
    plan = plan_of(payload["plan"], "plan")
    tokens = torch.tensor(payload["tokens"])
    done = payload["done"]
    settings = TrainSettings(steps=done + len(tokens))
    engine = make_engine(plan, context, settings, lambda step, row: tokens[step - done, row])
    source = ForeignWeights(Path(payload["folder"]), plan.model, plan.workload.seq_len)
    step = restore_foreign(engine, source)
    expected: dict[str, Tensor] = load_file(payload["expected"])
    state = collect_state(engine)
    wrong, seen = [], 0
    for name, value in expected.items():
        if name not in state:
            continue
        for box in state[name].contiguous_slices():
            ends = zip(box.offsets, box.tensor.shape, strict=True)
            same = value.view(box.full_shape)[tuple(slice(a, a + n) for a, n in ends)]
            seen += same.numel()
            if not torch.equal(same, box.tensor):
                wrong.append(name)
    losses = [engine.step().loss for _ in tokens]
    engine.close()
    read = source.reader.bytes_read
    return {"step": step, "wrong": wrong, "seen": seen, "losses": losses, "read": read}
