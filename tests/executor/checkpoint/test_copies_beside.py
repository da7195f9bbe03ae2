"""Copies of a save beside the next forward: the update waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks.checkpoint_files import RUN
from ranks.checkpoint_matrix import Cell

from shardwright.executor.checkpoint import saver as saving
from shardwright.executor.checkpoint.loader import FoundCheckpoint, load_slices
from shardwright.executor.checkpoint.manifest import read_manifest
from shardwright.executor.checkpoint.saver import Saver
from shardwright.executor.checkpoint.tensor_slices import TensorSlice
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.train.job import train

CPU = torch.device("cpu")
NAMES = ("model.a", "optimizer.exp_avg.a", "techniques.toy.a", "random.cpu.0")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def state(device: torch.device, size: int = 4) -> dict[str, TensorSlice]:
    rows = [torch.full((size,), float(n), device=device) for n in range(len(NAMES))]
    return dict(zip(NAMES, map(TensorSlice.unsplit, rows), strict=True))


def saved(folder: Path, size: int = 4) -> dict[str, float]:
    target = state(CPU, size)
    load_slices(FoundCheckpoint(folder, read_manifest(folder)), target)
    return {name: float(part.tensor.sum()) / size for name, part in target.items()}


def test_an_update_waits_for_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_copy, copies = threading.Event(), saving._HostCopy._copy_all

    def late(self: saving._HostCopy) -> None:
        assert may_copy.wait(30)
        copies(self)

    monkeypatch.setattr(saving._HostCopy, "_copy_all", late)
    own = Saver(tmp_path, 3, RUN, 0, CPU, wait=False, copies_beside=True)
    parts = state(CPU)
    own.save(1, parts)
    for name in NAMES[2:]:  # a forward and a backward may change them
        parts[name].tensor.fill_(9.0)
    waiting = threading.Thread(target=own.before_update)
    waiting.start()
    waiting.join(timeout=0.1)
    assert waiting.is_alive()
    may_copy.set()
    waiting.join(timeout=30)
    assert own.times.stall_s[-1] >= 0.1  # waiting is part of the stall
    for name in NAMES[:2]:  # the update
        parts[name].tensor.fill_(9.0)
    own.wait_written()
    own.close()
    assert saved(tmp_path / "step-00000001") == {name: float(n) for n, name in enumerate(NAMES)}


def test_a_copy_that_fails_is_an_error_of_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: saving._HostCopy) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(saving._HostCopy, "_copy_all", broken)
    own = Saver(tmp_path, 3, RUN, 0, CPU, wait=False, copies_beside=True)
    own.save(1, state(CPU))
    own.before_update()  # and does not wait for ever
    with pytest.raises(saving.RunError, match="rank 0 could not write it: no room"):
        own.wait_written()


@pytest.mark.parametrize("beside", [False, True])
def test_a_run_saves_the_same_either_way(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makes = saving.Saver.__init__

    def made(self: Saver, *args: object, **named: object) -> None:
        makes(self, *args, **{**named, "copies_beside": beside})  # type: ignore[arg-type]

    monkeypatch.setattr(saving.Saver, "__init__", made)
    context = RankContext(0, 1, CPU, 60.0, lambda _: None)
    plan = Cell("dp", 1).plan().to_document()
    given = {"random_tokens": True, "follow_bytes": False, "plan": plan}
    folder = {"folder": str(tmp_path), "every": 1, "keep": 9}
    whole = train(context, {**given, "steps": 4, "checkpoint": folder})
    again = train(
        context, {**given, "steps": 4, "checkpoint": {"resume": f"{tmp_path}/step-00000002"}}
    )
    assert whole is not None
    assert again is not None
    assert again["measured"]["losses"] == whole["measured"]["losses"][2:]


@pytest.mark.gpu
def test_a_gpu_copies_by_a_stream_of_its_own(tmp_path: Path) -> None:
    device, size = torch.device("cuda"), 1 << 24
    own = Saver(tmp_path, 3, RUN, 0, CPU, wait=False, copies_beside=True)
    parts = state(device, size)
    own.save(1, parts)
    for name in NAMES[2:]:
        parts[name].tensor.fill_(9.0)
    own.before_update()
    for name in NAMES[:2]:
        parts[name].tensor.fill_(9.0)
    own.wait_written()
    own.close()
    assert all(value.is_pinned() for value in own._held.values())
    found = saved(tmp_path / "step-00000001", size)
    assert found == {name: float(n) for n, name in enumerate(NAMES)}
