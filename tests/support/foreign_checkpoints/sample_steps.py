"""Sizes, batches and ranks of the scripts that make the sample checkpoints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

VOCAB, HIDDEN, FFN, LAYERS, HEADS, KV_HEADS = 32, 16, 24, 2, 4, 2
SEQ_LEN, BATCH, STEPS, NEXT_STEPS = 16, 4, 3, 4
LEARNING_RATE, BETAS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 0.1
Work = Callable[[int, int, Path, list[torch.Tensor]], list[float]]
"""``work(rank, ranks, folder, batches)``: trains, saves after ``STEPS``, goes on; all losses."""


def batches() -> list[torch.Tensor]:
    """The tokens of every step, (BATCH, SEQ_LEN + 1)."""
    generator = torch.Generator().manual_seed(11)
    shape = (BATCH, SEQ_LEN + 1)
    steps = STEPS + NEXT_STEPS
    return [torch.randint(0, VOCAB, shape, generator=generator) for _ in range(steps)]


def _rank(rank: int, ranks: int, store: str, folder: str, work: Work) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}/ranks", rank=rank, world_size=ranks
    )
    steps = batches()
    losses = work(rank, ranks, Path(folder), steps)
    if rank == 0:
        later = {"tokens": [step.tolist() for step in steps[STEPS:]], "losses": losses[STEPS:]}
        (Path(folder) / "next_steps.json").write_text(json.dumps(later))
    dist.barrier()
    dist.destroy_process_group()


def main(work: Work, ranks: int) -> None:
    """Make the checkpoint in the folder that the command line names."""
    with TemporaryDirectory() as store:
        mp.spawn(_rank, (ranks, store, sys.argv[1], work), ranks)


def mean_over(group: dist.ProcessGroup | None, loss: torch.Tensor) -> float:
    """The mean of a loss over a group's ranks."""
    total = loss.detach().clone()
    dist.all_reduce(total, group=group)
    return float(total) / dist.get_world_size(group)


def decayed_groups(model: torch.nn.Module) -> list[dict[str, object]]:
    """Matrices, which decay, and vectors, which do not."""
    parameters = [*model.parameters()]
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
