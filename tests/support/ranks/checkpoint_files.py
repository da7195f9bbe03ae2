"""Checkpoints without a run: written by one process that plays all ranks, and then damaged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from shardwright.executor.checkpoint.manifest import MANIFEST, Manifest, RunFacts
from shardwright.executor.checkpoint.storage.folders import step_folder, unfinished_folder
from shardwright.executor.checkpoint.tensor_slices import (
    SliceSavePlanner,
    TensorSlice,
    TensorSlices,
    plan_saves,
)
from shardwright.executor.checkpoint.writer import CheckpointWriter

RUN = RunFacts(
    plan="sha256:plan",
    model="sha256:model",
    seed=0,
    text="text",
    global_batch=8,
    seq_len=16,
    ranks=2,
    optimizer={"name": "adamw"},
    versions={"torch": "2"},
)


def write(root: Path, step: int, every: Sequence[TensorSlices], token: str = "token") -> Path:
    """A committed checkpoint of what each rank holds."""
    folder = step_folder(root, step)
    writer = CheckpointWriter(unfinished_folder(root, step, token), folder, RUN, step)
    rows = [[row for name, part in parts.items() for row in part.rows(name)] for parts in every]
    plans, metadata = plan_saves(rows)
    writer.set_up_storage_writer(is_coordinator=True)
    for rank, plan in enumerate(writer.prepare_global_plan(list(plans))):
        written = writer.write_data(plan, SliceSavePlanner(every[rank])).value()
        writer.write_rank_index(rank, written)
    writer.finish(metadata, writer.read_rank_indexes(len(every)))
    return folder


def halves(tensor: Tensor) -> list[TensorSlice]:
    """A tensor as two ranks hold it, cut between rows."""
    cut = -(-tensor.shape[0] // 2)
    rest = (0,) * (tensor.dim() - 1)
    whole = tuple(tensor.shape)
    return [
        TensorSlice(tensor[:cut], whole, (0, *rest)),
        TensorSlice(tensor[cut:], whole, (cut, *rest)),
    ]


def two_ranks(seed: int = 0) -> list[dict[str, TensorSlice]]:
    """A matrix in halves, a vector that both hold, a count, and a random state each."""
    generator = torch.Generator().manual_seed(seed)
    matrix, vector = torch.randn(5, 3, generator=generator), torch.randn(4, generator=generator)
    count = TensorSlice.unsplit(torch.tensor(float(seed)))
    own = [TensorSlice.unsplit(torch.full((3,), rank, dtype=torch.uint8)) for rank in range(2)]
    return [
        {
            "model.matrix": half,
            "model.vector": TensorSlice.unsplit(vector),
            "optimizer.step.matrix": count,
            f"random.cpu.{rank}": own[rank],
        }
        for rank, half in enumerate(halves(matrix))
    ]


def tensor_at(manifest: Manifest, file: str, byte: int) -> str:
    """The tensor that a byte of a data file belongs to; empty for the header."""
    for name, part in manifest.slices_of(file):
        if part.first_byte <= byte < part.first_byte + part.bytes:
            return name
    return ""


def flip(path: Path, byte: int, bit: int) -> None:
    """Change one bit of a file; the same again puts it back."""
    with path.open("r+b") as file:
        file.seek(byte)
        (old,) = file.read(1)
        file.seek(byte)
        file.write(bytes([old ^ (1 << bit)]))


def files_of(folder: Path) -> list[Path]:
    """A checkpoint's files, in one order."""
    return sorted(path for path in folder.iterdir() if path.is_file())


def any_byte(folder: Path, source: random.Random) -> tuple[Path, int]:
    """A byte of a checkpoint, each as likely as any other."""
    files = files_of(folder)
    path = source.choices(files, [file.stat().st_size for file in files])[0]
    return path, source.randrange(path.stat().st_size)


__all__ = [
    "MANIFEST",
    "RUN",
    "any_byte",
    "files_of",
    "flip",
    "halves",
    "tensor_at",
    "two_ranks",
    "write",
]
