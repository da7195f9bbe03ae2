"""Saves shared out among ranks, and loads that read every byte once, in one process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks.checkpoint_files import flip, two_ranks, write
from safetensors.torch import load_file

from shardwright.executor.checkpoint.loader import newest_valid
from shardwright.executor.checkpoint.manifest import read_manifest
from shardwright.executor.checkpoint.shared_reading import SharedReading
from shardwright.executor.checkpoint.slice_file import write_slices
from shardwright.executor.checkpoint.tensor_slices import SliceRecord, TensorSlice
from shardwright.executor.checkpoint.write_balance import share_out
from shardwright.spec.errors import RunError

CPU = torch.device("cpu")


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _bytes(rows: list[SliceRecord]) -> int:
    return sum(4 * int(torch.Size(row[4]).numel()) for row in rows)


def _replicas(ranks: int, shapes: list[list[int]]) -> list[list[SliceRecord]]:
    rows: list[SliceRecord] = [
        (f"t{n}", "float32", shape, [0] * len(shape), shape) for n, shape in enumerate(shapes)
    ]
    return [[*rows] for _ in range(ranks)]


@pytest.mark.parametrize("seed", range(6))
def test_replicas_write_within_a_tenth_of_the_mean(seed: int) -> None:
    chance = random.Random(seed)
    ranks = chance.randint(2, 8)
    shapes = [[chance.randint(1, 900), chance.randint(1, 600)] for _ in range(chance.randint(3, 9))]
    shapes += [[4000, 512], [7], []]
    records = _replicas(ranks, shapes)
    shared = share_out(records)
    sizes = [_bytes(rows) for rows in shared]
    assert sum(sizes) == _bytes(records[0])
    assert max(sizes) <= 1.1 * sum(sizes) / ranks
    assert shared == share_out(records)


def test_what_one_rank_holds_is_weighed_against_what_all_hold() -> None:
    records = _replicas(4, [[1024, 64]] * 8)
    own: SliceRecord = ("own", "float32", [1024, 128], [0, 0], [1024, 128])
    records[2].append(own)
    sizes = [_bytes(rows) for rows in share_out(records)]
    assert max(sizes) <= 1.1 * sum(sizes) / 4
    assert own in share_out(records)[2]


def test_a_file_is_one_that_safetensors_reads(tmp_path: Path) -> None:
    tensors = {
        "b": torch.arange(5, dtype=torch.uint8),
        "a": torch.randn(3, 2),
        "c": torch.tensor(2.0, dtype=torch.float64),
        "d": torch.ones(2, 2).bfloat16(),
        "e": torch.empty(0, 3),
    }
    with (tmp_path / "x.safetensors").open("wb") as file:
        stored, ranges = write_slices(file, tensors)
    found = load_file(tmp_path / "x.safetensors")
    assert stored.bytes == (tmp_path / "x.safetensors").stat().st_size
    assert all(torch.equal(found[key], value) for key, value in tensors.items())
    assert all(ranges[key].bytes == value.nbytes for key, value in tensors.items())


def _wanted() -> list[tuple[str, TensorSlice]]:
    matrix = TensorSlice(torch.zeros(3, 2), (5, 3), (1, 1))
    return [
        ("model.matrix", matrix),
        ("model.matrix", TensorSlice.unsplit(torch.zeros(5, 3))),
        ("model.vector", TensorSlice.unsplit(torch.zeros(4))),
        ("optimizer.step.matrix", TensorSlice.unsplit(torch.tensor(-1.0))),
    ]


def test_every_byte_is_read_once_and_lands(alone: None, tmp_path: Path) -> None:
    folder, wanted = write(tmp_path, 20, two_ranks(seed=4)), _wanted()
    reading = SharedReading(folder, read_manifest(folder), wanted, CPU)
    assert reading.load() == []
    halves = [part["model.matrix"].tensor for part in two_ranks(seed=4)]
    matrix = torch.cat(halves)
    assert torch.equal(wanted[1][1].tensor, matrix)
    assert torch.equal(wanted[0][1].tensor, matrix[1:4, 1:3])
    assert torch.equal(wanted[2][1].tensor, two_ranks(seed=4)[0]["model.vector"].tensor)
    assert float(wanted[3][1].tensor) == 4.0
    tensors = read_manifest(folder).tensors.values()
    assert reading.bytes_read == sum(part.bytes for tensor in tensors for part in tensor.parts)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(alone: None, tmp_path: Path) -> None:
    write(tmp_path, 20, two_ranks(seed=1))
    newest = write(tmp_path, 30, two_ranks(seed=2))
    part = read_manifest(newest).tensors["model.vector"].parts[0]
    flip(newest / part.file, part.first_byte, 3)
    said: list[str] = []
    wanted = _wanted()

    def load(checkpoint: object) -> list[object]:
        folder, manifest = checkpoint.folder, checkpoint.manifest  # type: ignore[attr-defined]
        return SharedReading(folder, manifest, wanted, CPU).load()

    found = newest_valid(tmp_path, 0, CPU, said.append, load)  # type: ignore[arg-type]
    assert found.manifest.step == 20
    assert "model.vector: its bytes are not those that were written" in said[0]
    assert float(wanted[3][1].tensor) == 1.0
    (found.folder / part.file).unlink()
    with pytest.raises(RunError, match="no good checkpoint"):
        newest_valid(tmp_path, 0, CPU, said.append, load)  # type: ignore[arg-type]
