"""Storage writer of torch's distributed checkpoint for our files.

Each rank writes a safetensors file (numbers and offsets, no code) and a JSON index beside it; rank
0 merges the indexes into the manifest and commits the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from ...spec.files import flush_to_disk
from .folders import commit
from .manifest import (
    MANIFEST,
    Manifest,
    RunFacts,
    StoredFile,
    StoredSlice,
    StoredTensor,
    stored_slice,
)
from .tensor_slices import dtype_name

LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header."""


def data_file(number: int) -> str:
    """Data file of a rank."""
    return f"rank-{number:04d}.safetensors"


class CheckpointWriter(StorageWriter):
    """Writes one checkpoint.

    Args:
        final: its name after the commit.
        step: optimizer steps done.
    """

    def __init__(self, unfinished: Path, final: Path, run: RunFacts, step: int) -> None:
        self.unfinished, self.final = unfinished, final
        self.run, self.step = run, step

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: one writer writes one checkpoint."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Make the folder."""
        self.unfinished.mkdir(parents=True, exist_ok=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Name each rank's file."""
        return [replace(plan, storage_data=data_file(n)) for n, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write a rank's slices and flush them to the disk."""
        future: Future[list[WriteResult]] = Future()
        future.set_result(self._written(plan, planner))
        return future

    def _written(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        if not plan.items:
            return []
        name = str(plan.storage_data)
        keys = {_key(item): item for item in plan.items}
        tensors = {key: _resolved(planner, item) for key, item in keys.items()}
        path = self.unfinished / name
        save_file(tensors, path)
        flush_to_disk(path)
        ranges = _tensor_ranges(path)[1]
        return [_result(i, key, name, tensors[key], ranges[key]) for key, i in keys.items()]

    def write_rank_index(self, number: int, results: list[WriteResult]) -> None:
        """Write the index of rank ``number``: its file is complete."""
        parts = [{"tensor": r.index.fqn, **asdict(r.storage_data)} for r in results]
        index = self._rank_index(number)
        index.with_suffix(".new").write_text(json.dumps(parts))
        index.with_suffix(".new").rename(index)

    def _rank_index(self, number: int) -> Path:
        return self.unfinished / f"{data_file(number)}.json"

    def has_rank_index(self, number: int) -> bool:
        """True if a rank's file is complete."""
        return self._rank_index(number).exists()

    def read_rank_indexes(self, ranks: int) -> list[list[WriteResult]]:
        """Results of every rank from its index; the indexes are removed."""
        results = []
        for number in range(ranks):
            index = self._rank_index(number)
            rows = json.loads(index.read_text())
            index.unlink()
            names = [row.pop("tensor") for row in rows]
            parts = [stored_slice(row) for row in rows]
            results.append([_as_result(n, part) for n, part in zip(names, parts, strict=True)])
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the manifest, and commit."""
        parts: dict[str, list[StoredSlice]] = {}
        for result in (row for rows in results for row in rows):
            parts.setdefault(result.index.fqn, []).append(result.storage_data)
        names = sorted({part.file for slices in parts.values() for part in slices})
        manifest = Manifest(
            step=self.step,
            run=self.run,
            files={name: _tensor_ranges(self.unfinished / name)[0] for name in names},
            tensors={
                name: StoredTensor(
                    dtype_name(metadata.state_dict_metadata[name].properties.dtype),  # type: ignore[union-attr]
                    tuple(metadata.state_dict_metadata[name].size),  # type: ignore[union-attr]
                    tuple(sorted(slices, key=lambda part: part.offsets)),
                )
                for name, slices in sorted(parts.items())
            },
        )
        path = self.unfinished / MANIFEST
        path.write_text(manifest.text())
        path.chmod(stat.S_IMODE((self.unfinished / names[0]).stat().st_mode))
        flush_to_disk(path)
        commit(self.unfinished, self.final)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Accept any folder."""
        return True


def _key(item: WriteItem) -> str:
    offsets = item.index.offset or ()
    return f"{item.index.fqn}@{','.join(str(offset) for offset in offsets)}"


def _resolved(planner: SavePlanner, item: WriteItem) -> Tensor:
    value = planner.resolve_data(item)
    if not isinstance(value, Tensor):
        raise TypeError(f"{item.index.fqn} is no tensor, and nothing else is kept")
    return value.detach().cpu().contiguous()


def _tensor_ranges(path: Path) -> tuple[StoredFile, dict[str, tuple[int, int]]]:
    """A file's header, and (first byte, size) of each tensor."""
    with path.open("rb") as file:
        length = file.read(LENGTH_BYTES)
        header = file.read(int.from_bytes(length, "little"))
        size = os.fstat(file.fileno()).st_size
    begin = LENGTH_BYTES + len(header)
    ranges = {
        key: (begin + row["data_offsets"][0], row["data_offsets"][1] - row["data_offsets"][0])
        for key, row in json.loads(header).items()
        if key != "__metadata__"
    }
    return StoredFile(size, begin, hashlib.sha256(length + header).hexdigest()), ranges


def _result(
    item: WriteItem, key: str, file: str, tensor: Tensor, byte_range: tuple[int, int]
) -> WriteResult:
    """Write result of a slice, with its in-memory digest."""
    raw: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    first, size = byte_range
    stored = StoredSlice(
        offsets=tuple(item.index.offset or ()),
        sizes=tuple(tensor.shape),
        file=file,
        key=key,
        first_byte=first,
        bytes=size,
        sha256=hashlib.sha256(raw).hexdigest(),
    )
    return _as_result(item.index.fqn, stored)


def _as_result(name: str, stored: StoredSlice) -> WriteResult:
    return WriteResult(MetadataIndex(name, stored.offsets), stored.bytes, stored)


__all__ = ["CheckpointWriter", "data_file"]
