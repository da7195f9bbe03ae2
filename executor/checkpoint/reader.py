"""Storage reader of torch's distributed checkpoint for our files."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from .manifest import Manifest, StoredSlice, read_manifest
from .storage.paths import CheckpointPath
from .storage.regular_file import open_regular
from .tensor_slices import dtype_of


class CheckpointReader(StorageReader):
    """Reads the slices that a load plan requests.

    It trusts the digests: verify the files first with :func:`integrity.damages`.

    Args:
        manifest: its own; read if None.
    """

    def __init__(self, folder: CheckpointPath, manifest: Manifest | None = None) -> None:
        self.folder = folder
        self.manifest = manifest or read_manifest(folder)
        self._stored: dict[MetadataIndex, StoredSlice] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: one reader reads one checkpoint."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Tensors of the checkpoint."""
        return self.manifest.metadata()

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Keep the positions of the slices."""
        self._stored = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans unchanged."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the requested slices to their targets."""
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self._stored[item.storage_index].file, []).append(item)
        for name in sorted(by_file):
            with open_regular(self.folder / name) as file:
                for item in by_file[name]:
                    stored = self._stored[item.storage_index]
                    dtype = dtype_of(self.manifest.tensors[item.storage_index.fqn].dtype)
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(_read_box(file, stored, dtype, item))
                    planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Accept any folder."""
        return True


def _read_box(file: BinaryIO, part: StoredSlice, dtype: torch.dtype, item: ReadItem) -> Tensor:
    data = bytearray(part.bytes)
    file.seek(part.first_byte)
    if file.readinto(data) != part.bytes:  # type: ignore[attr-defined]
        raise OSError(f"{part.file} ends early")
    whole = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    pairs = zip(item.storage_offsets, item.lengths, strict=True)
    return whole.view(part.sizes)[tuple(slice(a, a + n) for a, n in pairs)]
