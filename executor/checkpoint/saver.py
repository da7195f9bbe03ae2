"""Asynchronous saving: a step waits only for a copy in host memory.

Ranks agree on who writes what with collectives on the main thread; a thread only writes files. It
ends when the checkpoint is committed or any rank has failed; the outcome is agreed at the next save
or at the end, as an error on every rank. So at most one checkpoint is in flight.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan

from ...spec.errors import InputError, RunError
from ..launch.consistency import gather_json
from ..launch.progress import PROGRESS
from .finite_state import require_finite
from .folder_lock import release_lock, take_lock
from .folders import prune, step_folder, sweep, unfinished_folder
from .manifest import RunFacts
from .tensor_slices import SliceRecord, SliceSavePlanner, TensorSlice, TensorSlices, plan_saves
from .writer import CheckpointWriter

POLL_S = 0.02
MAX_WRITE_S = 3600.0
FAILED = "failed"


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

    Raises:
        InputError: the folder cannot be made, or another run writes in it; the same on every rank.
    """

    def __init__(
        self, root: Path, keep: int, run: RunFacts, rank: int, device: torch.device, wait: bool
    ) -> None:
        self.root, self.keep, self.run = root, keep, run
        self.rank, self.device, self.wait = rank, device, wait
        self.protected: Path | None = None
        """A checkpoint that stays, however old it is."""
        self.committed: list[int] = []
        self._layout: _SavePlans | None = None
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
                take_lock(self.root)
                sweep(self.root)
        except InputError as error:
            return str(error.given), error.allowed
        except OSError as error:
            return str(self.root), f"a folder ({error.strerror})"
        return None

    def close(self) -> None:
        """Let another run write in the folder."""
        if self.rank == 0:
            with contextlib.suppress(OSError):  # a lock of an ended process is taken over
                release_lock(self.root)

    def save(self, step: int, slices: TensorSlices) -> None:
        """Begin to save the state after ``step`` steps.

        Raises:
            RunError: the checkpoint before this one could not be written.
        """
        self.wait_written()
        plans, metadata = self._planned(slices)
        names = dict.fromkeys(item.index.fqn for item in plans[self.rank].items)
        local_slices = {name: _on_host(slices[name]) for name in names}
        folder = unfinished_folder(self.root, step, self._token)
        writer = CheckpointWriter(folder, step_folder(self.root, step), self.run, step)
        self._step, self._is_committed = step, False
        self._thread = threading.Thread(
            target=self._write,
            args=(writer, plans, metadata, local_slices),
            name=f"checkpoint of step {step}",
            daemon=True,
        )
        self._thread.start()
        if self.wait:
            self.wait_written()

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
        local_slices: dict[str, TensorSlice],
    ) -> None:
        try:
            writer.set_up_storage_writer(self.rank == 0)
            require_finite(local_slices)
            plan = writer.prepare_global_plan(list(plans))[self.rank]
            writer.write_rank_index(
                self.rank, writer.write_data(plan, SliceSavePlanner(local_slices)).value()
            )
            local_slices.clear()
            if self.rank:
                self._await_commit(writer)
            elif self._await_rank_files(writer, len(plans)):
                writer.finish(metadata, writer.read_rank_indexes(len(plans)))
                self._is_committed = True
                prune(self.root, writer.step, self.keep, self.protected)
        except Exception as error:  # whatever it is, the run must learn of it
            self._error = (
                f"could not write it: {' '.join(str(error).split()) or type(error).__name__}"
            )
            self._mark_failed(writer.unfinished)

    def _mark_failed(self, folder: Path) -> None:
        try:
            (folder / f"{FAILED}-{self.rank}").touch()
        except OSError:  # they find out from the time that it takes
            return

    def _await_rank_files(self, writer: CheckpointWriter, ranks: int) -> bool:
        missing = set(range(ranks))
        for _ in _polls():
            missing = {number for number in missing if not writer.has_rank_index(number)}
            if not missing:
                return True
            if any(writer.unfinished.glob(f"{FAILED}-*")):
                shutil.rmtree(writer.unfinished, ignore_errors=True)
                return False
        raise TimeoutError(f"rank {min(missing)} wrote nothing in {MAX_WRITE_S:.0f} s")

    @staticmethod
    def _await_commit(writer: CheckpointWriter) -> None:
        """Wait until the folder is gone: rank 0 committed or gave up."""
        for _ in _polls():
            if not writer.unfinished.exists():
                return
            if any(writer.unfinished.glob(f"{FAILED}-0")):
                return
        raise TimeoutError(f"rank 0 did not commit it in {MAX_WRITE_S:.0f} s")


def _polls() -> Iterator[None]:
    end_s = time.monotonic() + MAX_WRITE_S
    while time.monotonic() < end_s:
        yield
        time.sleep(POLL_S)


def _on_host(tensor_slice: TensorSlice) -> TensorSlice:
    copy = tensor_slice.tensor.detach().to("cpu", copy=True)
    return tensor_slice.with_tensor(copy.contiguous())
