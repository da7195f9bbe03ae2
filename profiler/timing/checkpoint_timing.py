"""Timing of what a checkpoint does: copies, digests, writes and reads of a folder.

As a run saves: through the page cache, then flushed. All ranks work at once, so that what they
share is in the figure; rows of storage have the bytes of all of them together.
"""

from __future__ import annotations

import os
import secrets
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
import torch.distributed as dist

from ...executor.checkpoint.finite_state import require_finite
from ...executor.checkpoint.slice_file import PIECE_BYTES
from ...executor.checkpoint.storage.digests import Digest
from ...executor.checkpoint.storage.far_path import FarPath
from ...executor.checkpoint.storage.paths import CheckpointPath, checkpoint_path
from ...executor.checkpoint.storage.regular_file import open_regular
from ...spec.errors import InputError
from ...spec.files import flush_to_disk
from ...spec.units import MIB

if TYPE_CHECKING:
    from ...executor.launch.rank_context import RankContext

RANK_BYTES = (MIB, 32 * MIB)
REPEATS = 3


def measure_checkpoint(context: RankContext, payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Job: time a checkpoint's work in ``folder``, a path or a URL.

    ``rank_bytes``: sizes, those of ``RANK_BYTES`` if none are given.

    Returns:
        Rows as spec.cluster.machine_profile.CopyRow: medians of the slowest rank's seconds.

    Raises:
        InputError: the folder cannot be written.
    """
    sizes = payload.get("rank_bytes", RANK_BYTES)
    token = secrets.token_hex(4)
    path = checkpoint_path(payload["folder"]) / f".shardwright-{token}-{context.rank}"
    try:
        return [row for size in sizes for row in _rows(context, path, size)]
    except OSError as error:
        given = f"{payload['folder']} ({error.strerror or error})"
        raise InputError("--checkpoint", given, "a folder that can be written") from None
    finally:
        path.unlink(missing_ok=True)


def _rows(context: RankContext, path: CheckpointPath, size: int) -> list[dict[str, Any]]:
    values = torch.zeros(size // 4, device=context.device)
    held = torch.empty(values.shape, pin_memory=values.device.type == "cuda").copy_(values)
    numbers: Any = held.numpy()
    data = memoryview(numbers).cast("B")

    def digested() -> None:
        require_finite({("", (0,)): held})
        Digest().update(data)

    work: dict[str, tuple[Callable[[], object], int]] = {
        "checkpoint_copy": (lambda: held.copy_(values), 1),
        "checkpoint_digest": (digested, 1),
        "checkpoint_write": (lambda: _write(path, data), context.world_size),
        "checkpoint_read": (lambda: _read(path, size), context.world_size),
    }
    return [
        {"kind": kind, "payload_bytes": size * ranks, **_timed(context, run)}
        for kind, (run, ranks) in work.items()
    ]


def _write(path: CheckpointPath, data: memoryview) -> None:
    def write(file: BinaryIO) -> None:
        for first in range(0, len(data), PIECE_BYTES):
            file.write(data[first : first + PIECE_BYTES])

    if isinstance(path, FarPath):
        path.write_with(write)
        return
    with path.open("wb") as file:
        write(file)
    flush_to_disk(path)


def _read(path: CheckpointPath, size: int) -> None:
    with open_regular(path) as file:
        if isinstance(path, Path) and hasattr(os, "posix_fadvise"):  # drop it from the page cache
            os.posix_fadvise(file.fileno(), 0, size, os.POSIX_FADV_DONTNEED)
        if file.readinto(bytearray(size)) != size:  # type: ignore[attr-defined]
            raise OSError("the file is shorter than what was written")


def _timed(context: RankContext, run: Callable[[], object]) -> dict[str, float]:
    times = []
    for _ in range(REPEATS):
        if context.world_size > 1:
            dist.barrier()
        start_s = time.perf_counter()
        run()
        slowest = torch.tensor(time.perf_counter() - start_s, device=context.device)
        if context.world_size > 1:
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
        times.append(float(slowest))
    median_s = statistics.median(times)
    return {"time_s": median_s, "spread": (max(times) - min(times)) / median_s}
