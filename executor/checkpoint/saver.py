"""Asynchronous saving: a step waits only for a copy in host memory.

Ranks agree on who writes what with collectives on the main thread; a thread only writes files. On a
GPU it first copies weights and moments, by a stream of its own into pinned memory, beside the next
forward and backward: nothing but the update changes them, and waits for it (CheckFreq, FAST 2021,
the two phases of a checkpoint). On cores the copy would compete with the step, and is made in line.
The thread ends when the checkpoint is committed or any rank has failed; the outcome is agreed at
the next save or at the end, as an error on every rank. So at most one checkpoint is in flight.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan

from ...spec.errors import InputError, RunError
from ..launch.consistency import gather_json
from ..launch.progress import PROGRESS
from .engine_state import MODEL, OPTIMIZER
from .finite_state import require_finite
from .foreign.lazy_planner import BoxSavePlanner
from .manifest import RunFacts
from .storage.far_path import FarPath
from .storage.folder_lease import FolderLease
from .storage.folder_lock import release_lock, take_lock
from .storage.folders import (
    drop,
    is_committed,
    prune,
    step_folder,
    step_folders,
    step_of,
    sweep,
    unfinished_folder,
)
from .storage.paths import CheckpointPath, remove_tree, write_whole
from .tensor_slices import SliceRecord, SliceSavePlanner, TensorSlices, plan_saves
from .writer import CheckpointWriter

POLL_S, LARGEST_POLL_S, LONGER = 0.02, 1.0, 1.2
"""Waits between looks; those at a far storage grow by a factor."""
MAX_WRITE_S = 3600.0
WRITER_NICE = 10
"""Of the thread that writes: its share of a core beside a step, setpriority(2)."""
FAILED = "failed"
LASTING = (MODEL, OPTIMIZER)
"""Beginnings of names of states that nothing but an update changes."""
Held = dict[tuple[str, tuple[int, ...]], Tensor]
"""Copies in host memory of what a rank writes, by name and offsets."""


@dataclass(slots=True)
class SaveTimes:
    """Seconds of a run's saves on a rank, and the bytes of its largest.

    ``end_to_end_s``: from the stall to the commit, on the rank that commits.
    """

    stall_s: list[float] = field(default_factory=list)
    end_to_end_s: list[float] = field(default_factory=list)
    rank_bytes: int = 0

    def document(self, device: torch.device) -> dict[str, Any]:
        """Medians; the slowest rank's and the fullest's. Collective."""
        ranks = gather_json([self.stall_s, self.rank_bytes], device)
        stalls = [max(times) for times in zip(*(row[0] for row in ranks), strict=True)]
        sizes = [row[1] for row in ranks]
        mean = sum(sizes) / len(sizes)
        found: dict[str, Any] = {"rank_bytes": max(sizes), "bytes": sum(sizes)}
        if mean:
            found["largest_over_mean"] = max(sizes) / mean
        if stalls:
            found["stall_s"] = statistics.median(stalls[1:] or stalls)  # the first plans
        if self.end_to_end_s:
            found["end_to_end_s"] = statistics.median(self.end_to_end_s)
        return found


@dataclass(frozen=True, slots=True)
class _SavePlans:
    """Save plans of all ranks, valid while slice shapes stay the same."""

    digests: tuple[str, ...]
    plans: Sequence[SavePlan]
    metadata: Metadata


class Saver:
    """Saves a run's checkpoints; every rank calls everything in the same order.

    Args:
        root: folder of checkpoints, the same for all ranks.
        device: of the world's collectives.
        wait: True if a save ends only when its checkpoint is committed.
        copies_beside: True if a step may begin before weights and moments are copied, so that
            :meth:`before_update` has to be called; None for True on a GPU alone.

    Raises:
        InputError: the folder cannot be made, or another run writes in it; the same on every rank.
    """

    def __init__(
        self,
        root: CheckpointPath,
        keep: int,
        run: RunFacts,
        rank: int,
        device: torch.device,
        wait: bool,
        copies_beside: bool | None = None,
    ) -> None:
        self.root, self.keep, self.run = root, keep, run
        self.rank, self.device, self.wait = rank, device, wait
        self._copies_beside = device.type == "cuda" if copies_beside is None else copies_beside
        self._copy: _HostCopy | None = None
        self.protected: CheckpointPath | None = None
        """A checkpoint that stays, however old it is."""
        self.committed: list[int] = []
        self.times = SaveTimes()
        self._layout: _SavePlans | None = None
        self._held: Held = {}
        """Host memory of the save before, written over by the next: no page of it is new."""
        self._lease = FolderLease(root) if rank == 0 and isinstance(root, FarPath) else None
        self._earlier: set[int | None] = set()
        """Steps of checkpoints by URL that a save of the same step replaces."""
        self._thread: threading.Thread | None = None
        self._step = 0
        self._error: str | None = None
        self._is_committed = False
        refusals = gather_json(self._prepared_folder(), device)
        for refusal in refusals:
            if refusal is not None:
                raise InputError("--checkpoint", *refusal)
        tokens = gather_json(secrets.token_hex(4), device)
        self._token = tokens[0]

    def _prepared_folder(self) -> tuple[str, str] | None:
        """Make, lock and sweep the folder; what was given and allowed if it cannot be used."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if self.rank == 0:
                if isinstance(self.root, Path):
                    take_lock(self.root)
                if self._lease is not None:
                    self._lease.take()
                sweep(self.root)
                if isinstance(self.root, FarPath):
                    self._earlier = {step_of(path) for path in step_folders(self.root)}
        except InputError as error:
            return str(error.given), error.allowed
        except OSError as error:
            return str(self.root), f"a folder ({error.strerror or error})"
        return None

    def close(self) -> None:
        """Let another run write in the folder."""
        if self._lease is not None:
            self._lease.release()
        if self.rank == 0 and isinstance(self.root, Path):
            with contextlib.suppress(OSError):  # a lock of an ended process is taken over
                release_lock(self.root)

    def save(self, step: int, slices: TensorSlices) -> None:
        """Begin to save the state after ``step`` steps.

        Raises:
            RunError: the checkpoint before this one could not be written.
        """
        self.wait_written()
        start_s = time.perf_counter()
        if step in self._earlier:  # before any rank writes: planning is collective
            drop(step_folder(self.root, step))
        plans, metadata = self._planned(slices)
        local = SliceSavePlanner(slices)
        values = {
            (item.index.fqn, tuple(item.index.offset or ())): local.resolve_data(item).detach()
            for item in plans[self.rank].items
        }
        self._copy = copy = _HostCopy(values, self._held, self._copies_beside)
        self._held = copy.held
        folder = unfinished_folder(self.root, step, self._token)
        writer = CheckpointWriter(folder, step_folder(self.root, step), self.run, step)
        self._step, self._is_committed = step, False
        self._thread = threading.Thread(
            target=self._write,
            args=(writer, plans, metadata, copy, start_s),
            name=f"checkpoint of step {step}",
            daemon=True,
        )
        self._thread.start()
        self.times.stall_s.append(time.perf_counter() - start_s)
        if self.wait:
            self.wait_written()

    def before_update(self) -> None:
        """Wait until the state of the save in flight is copied, and may be changed."""
        if self._copy is None:
            return
        start_s = time.perf_counter()
        while not self._copy.is_made.wait(timeout=0.5):
            PROGRESS.tick()
        self._copy = None
        self.times.stall_s[-1] += time.perf_counter() - start_s

    def wait_written(self) -> None:
        """Wait for the checkpoint in flight, if any.

        Raises:
            RunError: a rank could not write its part of it; the same on every rank.
        """
        if self._thread is None:
            return
        before = PROGRESS.where
        PROGRESS.mark(f"waiting for the checkpoint of step {self._step} to be written")
        while self._thread.is_alive():
            self._thread.join(timeout=0.5)
            PROGRESS.tick()
        self._thread = None
        PROGRESS.mark(before)
        for rank, error in enumerate(gather_json(self._error, self.device)):
            if error is not None:
                raise RunError(f"the checkpoint of step {self._step}: rank {rank} {error}")
        self.committed.append(self._step)

    def is_written(self) -> bool:
        """True if rank 0 has committed the checkpoint in flight."""
        return self._thread is not None and self._is_committed

    @property
    def step(self) -> int:
        """Step of the latest save."""
        return self._step

    def _planned(self, slices: TensorSlices) -> tuple[Sequence[SavePlan], Metadata]:
        """Plans of all ranks, remade only where slice shapes change."""
        rows: list[SliceRecord] = [
            row for name, tensor_slice in slices.items() for row in tensor_slice.rows(name)
        ]
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        digests = tuple(gather_json(digest, self.device))
        if self._layout is None or self._layout.digests != digests:
            try:
                plans, metadata = plan_saves(gather_json(rows, self.device))
            except ValueError as error:
                raise RunError(f"the parts of all ranks are not one model: {error}") from None
            self._layout = _SavePlans(digests, plans, metadata)
        return self._layout.plans, self._layout.metadata

    def _write(
        self,
        writer: CheckpointWriter,
        plans: Sequence[SavePlan],
        metadata: Metadata,
        copy: _HostCopy,
        start_s: float,
    ) -> None:
        try:
            copy.make()
            _yield_cores()
            writer.set_up_storage_writer(self.rank == 0)
            if self._lease is not None:
                self._lease.require()
            require_finite(copy.held)
            plan = writer.prepare_global_plan(list(plans))[self.rank]
            results = writer.write_data(plan, BoxSavePlanner(copy.held)).value()
            self.times.rank_bytes = sum(result.size_in_bytes for result in results)
            writer.write_rank_index(self.rank, results)
            if self.rank:
                self._await_commit(writer)
            elif self._await_rank_files(writer, len(plans)):
                writer.finish(metadata, writer.read_rank_indexes(len(plans)))
                self._is_committed = True
                self.times.end_to_end_s.append(time.perf_counter() - start_s)
                prune(self.root, writer.step, self.keep, self.protected)
        except Exception as error:  # whatever it is, the run must learn of it
            self._error = (
                f"could not write it: {' '.join(str(error).split()) or type(error).__name__}"
            )
            self._mark_failed(writer.unfinished)

    def _mark_failed(self, folder: CheckpointPath) -> None:
        try:
            write_whole(folder / f"{FAILED}-{self.rank}", b"\n")
        except OSError:  # they find out from the time that it takes
            return

    def _await_rank_files(self, writer: CheckpointWriter, ranks: int) -> bool:
        missing = set(range(ranks))
        for _ in _polls(writer.unfinished):
            missing = {number for number in missing if not writer.has_rank_index(number)}
            if not missing:
                return True
            if _failed(writer.unfinished):
                remove_tree(writer.unfinished)
                return False
        raise TimeoutError(f"rank {min(missing)} wrote nothing in {MAX_WRITE_S:.0f} s")

    @staticmethod
    def _await_commit(writer: CheckpointWriter) -> None:
        """Wait until rank 0 committed or gave up."""
        for _ in _polls(writer.unfinished):
            if is_committed(writer.final, writer.unfinished):
                return
            failed = _failed(writer.unfinished)
            if f"{FAILED}-0" in failed or not (failed or writer.unfinished.exists()):
                return
        raise TimeoutError(f"rank 0 did not commit it in {MAX_WRITE_S:.0f} s")


def _yield_cores() -> None:
    """Let the step have the cores before this thread, where the system knows threads."""
    if sys.platform == "linux":  # elsewhere it would be the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), WRITER_NICE)


def _failed(folder: CheckpointPath) -> list[str]:
    """Marks of ranks that could not write."""
    try:
        return [path.name for path in folder.iterdir() if path.name.startswith(FAILED)]
    except FileNotFoundError:
        return []


def _polls(folder: CheckpointPath) -> Iterator[None]:
    wait_s, factor = POLL_S, 1.0 if isinstance(folder, Path) else LONGER
    end_s = time.monotonic() + MAX_WRITE_S
    while time.monotonic() < end_s:
        yield
        time.sleep(wait_s)
        wait_s = min(LARGEST_POLL_S, factor * wait_s)


class _HostCopy:
    """Copies in host memory of what a rank writes; what a step changes is copied at once.

    ``held``: by name and offsets; memory of the save before is written over where it fits, and is
    pinned beside a GPU. ``is_made``: set once ``values`` may be changed.
    """

    def __init__(self, values: Held, earlier: Held, beside: bool) -> None:
        self.held = {key: _host_memory(value, earlier.get(key)) for key, value in values.items()}
        self.is_made = threading.Event()
        self._later = {key: x for key, x in values.items() if beside and key[0].startswith(LASTING)}
        self._device = next((x.device for x in self._later.values() if x.is_cuda), None)
        if self._device is not None:
            self._state_is_there = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._state_is_there.record(torch.cuda.current_stream(self._device))
        for key, value in values.items():
            if key not in self._later:
                self.held[key].copy_(value)
        if not self._later:
            self.is_made.set()

    def make(self) -> None:
        """Copy the rest."""
        try:
            if self._device is None:
                self._copy_all()
                return
            stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            stream.wait_event(self._state_is_there)
            with torch.cuda.stream(stream):
                self._copy_all()
            stream.synchronize()
        finally:
            self._later = {}
            self.is_made.set()

    def _copy_all(self) -> None:
        for key, value in self._later.items():
            self.held[key].copy_(value, non_blocking=True)


def _host_memory(value: Tensor, earlier: Tensor | None) -> Tensor:
    if earlier is not None and (earlier.shape, earlier.dtype) == (value.shape, value.dtype):
        return earlier
    return torch.empty(value.shape, dtype=value.dtype, pin_memory=value.device.type == "cuda")
