"""Jobs that save and load the same state as torch's distributed checkpoint does, and as ours does.

Every rank holds a part of sharded tensors, as under FSDP2; four ranks save one state.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks.checkpoint_files import RUN
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from shardwright.executor.checkpoint.loader import newest_valid
from shardwright.executor.checkpoint.saver import Saver
from shardwright.executor.checkpoint.shared_reading import SharedReading
from shardwright.executor.checkpoint.tensor_slices import TensorSlice
from shardwright.executor.launch.rank_context import RankContext

TENSORS, WIDTH = 20, 512


def _state(context: RankContext, rank_bytes: int) -> dict[str, Tensor]:
    rows = rank_bytes // TENSORS // WIDTH // 4
    generator = torch.Generator().manual_seed(context.rank)
    return {f"model.{n}": torch.randn(rows, WIDTH, generator=generator) for n in range(TENSORS)}


def _slices(context: RankContext, state: dict[str, Tensor]) -> dict[str, TensorSlice]:
    ranks = context.world_size
    slices = {
        name: TensorSlice(
            value, (value.shape[0] * ranks, WIDTH), (value.shape[0] * context.rank, 0)
        )
        for name, value in state.items()
    }
    return slices | {f"random.cpu.{context.rank}": TensorSlice.unsplit(torch.zeros(8))}


def beside(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Job: stall, end to end and load of both, medians of ``repeats``, the slowest rank's.

    ``rank_bytes``: of a rank's state; ``folder``: where; ``work_s``: of the step beside a save.
    """
    state = _state(context, payload["rank_bytes"])
    root, repeats = Path(payload["folder"]), payload["repeats"]
    found = _ours(context, state, root / "ours", repeats)
    found |= _theirs(context, state, root / "torch", repeats)
    return {name: _slowest(context, times) for name, times in found.items()}


def _ours(
    context: RankContext, state: dict[str, Tensor], root: Path, repeats: int
) -> dict[str, list[float]]:
    run = replace(RUN, ranks=context.world_size)
    saver = Saver(root, 1, run, context.rank, context.device, wait=False)
    times: dict[str, list[float]] = {"stall": [], "end to end": [], "step": []}
    for step in range(1, repeats + 2):
        dist.barrier()
        start_s = time.perf_counter()
        saver.save(step, _slices(context, state))
        times["stall"].append(time.perf_counter() - start_s)
        times["step"].append(_work())
        saver.wait_written()
        times["end to end"].append(time.perf_counter() - start_s)
    saver.close()
    times = {name: values[1:] for name, values in times.items()}  # the first plans
    target = {name: torch.zeros_like(value) for name, value in state.items()}
    wanted = [*_slices(context, target).items()]

    def load() -> None:
        def take(found: Any) -> list[Any]:
            return SharedReading(found.folder, found.manifest, wanted, context.device).load()

        newest_valid(root, context.rank, context.device, lambda _: None, take)

    times["load"] = _timed(load, repeats)
    assert all(torch.equal(target[name], value) for name, value in state.items())
    return {f"ours {name}": values for name, values in times.items()}


def _theirs(
    context: RankContext, state: dict[str, Tensor], root: Path, repeats: int
) -> dict[str, list[float]]:
    mesh = init_device_mesh("cpu", (context.world_size,))
    sharded = {
        name: DTensor.from_local(value, mesh, [Shard(0)], run_check=False)
        for name, value in state.items()
    }
    group = dist.new_group(backend="gloo")
    times: dict[str, list[float]] = {"stall": [], "end to end": [], "step": [], "save": []}
    for number in range(repeats + 1):
        for kind in ("async", "save"):
            dist.barrier()
            folder = root / f"{kind}{number}"
            start_s = time.perf_counter()
            if kind == "save":
                dcp.save(sharded, checkpoint_id=folder)
                times["save"].append(time.perf_counter() - start_s)
            else:
                future = dcp.async_save(sharded, checkpoint_id=folder, process_group=group)
                times["stall"].append(time.perf_counter() - start_s)
                times["step"].append(_work())
                getattr(future, "result", lambda: None)()
                times["end to end"].append(time.perf_counter() - start_s)
            dist.barrier()
            if context.rank == 0 and number < repeats:
                shutil.rmtree(folder)
    times = {name: values[1:] for name, values in times.items()}
    target = {
        name: DTensor.from_local(torch.zeros_like(value), mesh, [Shard(0)], run_check=False)
        for name, value in state.items()
    }
    folder = root / f"save{repeats}"
    times["load"] = _timed(lambda: dcp.load(target, checkpoint_id=folder), repeats)
    assert all(torch.equal(target[name].to_local(), value) for name, value in state.items())
    return {f"torch {name}": values for name, values in times.items()}


def _work() -> float:
    """Seconds of a step's computation."""
    start_s = time.perf_counter()
    value = torch.ones(384, 384)
    for _ in range(20):
        value = (value @ value).clamp(max=1.0)
    return time.perf_counter() - start_s


def _timed(run: Callable[[], None], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        dist.barrier()
        start_s = time.perf_counter()
        run()
        times.append(time.perf_counter() - start_s)
    return times


def _slowest(context: RankContext, times: list[float]) -> float:
    values = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return statistics.median(values.tolist())
