"""Storage writer of torch's distributed checkpoint for our files.

Each rank writes a safetensors file (numbers and offsets, no code) and a JSON index beside it; rank
0 merges the indexes into the manifest and commits the folder.
"""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from ...spec.codec import from_document
from ...spec.files import flush_to_disk
from .manifest import (
    Manifest,
    RunFacts,
    StoredFile,
    StoredSlice,
    StoredTensor,
    stored_slice,
)
from .slice_file import WrittenRange, write_slices
from .storage.far_path import FarPath
from .storage.folders import MANIFEST, commit
from .storage.paths import CheckpointPath, write_whole
from .tensor_slices import dtype_name

FAR_FILE_BYTES, UPLOADS = 64 << 20, 4
"""A rank's bytes go to a far storage in files of at most so many, so many at once."""


def data_file(number: int) -> str:
    """Data file of a rank."""
    return f"rank-{number:04d}.safetensors"


class CheckpointWriter(StorageWriter):
    """Writes one checkpoint.

    Args:
        final: its name after the commit.
        step: optimizer steps done.
    """

    def __init__(
        self, unfinished: CheckpointPath, final: CheckpointPath, run: RunFacts, step: int
    ) -> None:
        self.unfinished, self.final = unfinished, final
        self.run, self.step = run, step
        self._files: dict[str, StoredFile] = {}
        self._ranks = 1

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: one writer writes one checkpoint."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Make the folder."""
        self.unfinished.mkdir(parents=True, exist_ok=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Number each rank's file."""
        self._ranks = len(plans)
        return [replace(plan, storage_data=number) for number, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write a rank's slices and flush them to the disk."""
        future: Future[list[WriteResult]] = Future()
        future.set_result(self._written(plan, planner))
        return future

    def _written(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        if not plan.items:
            return []
        keys = {_key(item): item for item in plan.items}
        tensors = {key: _resolved(planner, item) for key, item in keys.items()}
        if isinstance(self.unfinished, FarPath):
            limit, threads = FAR_FILE_BYTES, UPLOADS
        else:
            limit, threads = sum(tensor.nbytes for tensor in tensors.values()), 1
        files = {
            data_file(plan.storage_data + number * self._ranks): held
            for number, held in enumerate(_parted(tensors, limit))
        }
        with ThreadPoolExecutor(threads) as pool:
            written = [*pool.map(self._write_file, files, files.values())]
        return [
            _result(keys[key], key, name, tensors[key], ranges[key])
            for name, ranges in zip(files, written, strict=True)
            for key in files[name]
        ]

    def _write_file(self, name: str, tensors: dict[str, Tensor]) -> dict[str, WrittenRange]:
        path = self.unfinished / name
        if isinstance(path, FarPath):
            self._files[name], ranges = path.write_with(lambda file: write_slices(file, tensors))
            return ranges
        with path.open("wb") as file:
            self._files[name], ranges = write_slices(file, tensors)
        flush_to_disk(path)
        return ranges

    def write_rank_index(self, number: int, results: list[WriteResult]) -> None:
        """Write the index of rank ``number``: its file is complete."""
        parts = [{"tensor": r.index.fqn, **asdict(r.storage_data)} for r in results]
        names = {part["file"] for part in parts}
        files = {name: asdict(self._files[name]) for name in sorted(names)}
        text = json.dumps({"files": files, "parts": parts}) + "\n"
        write_whole(self._rank_index(number), text.encode())

    def _rank_index(self, number: int) -> CheckpointPath:
        return self.unfinished / f"{data_file(number)}.json"

    def has_rank_index(self, number: int) -> bool:
        """True if a rank's file is complete."""
        index = self._rank_index(number)
        if isinstance(index, FarPath):
            return index.exists() and index.read_bytes().endswith(b"\n")
        return index.exists()

    def read_rank_indexes(self, ranks: int) -> list[list[WriteResult]]:
        """Results of every rank from its index; the indexes are removed."""
        results = []
        for number in range(ranks):
            index = self._rank_index(number)
            document = json.loads(index.read_bytes())
            index.unlink()
            for name, row in document["files"].items():
                self._files[name] = from_document(StoredFile, row, "index of a rank")
            rows = document["parts"]
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
            files={name: self._files[name] for name in names},
            tensors={
                name: StoredTensor(
                    dtype_name(metadata.state_dict_metadata[name].properties.dtype),  # type: ignore[union-attr]
                    tuple(metadata.state_dict_metadata[name].size),  # type: ignore[union-attr]
                    tuple(sorted(slices, key=lambda part: part.offsets)),
                )
                for name, slices in sorted(parts.items())
            },
        )
        path, data = self.unfinished / MANIFEST, self.unfinished / names[0]
        if isinstance(path, FarPath) or isinstance(data, FarPath):
            write_whole(path, manifest.text().encode())
            return
        path.write_text(manifest.text())
        path.chmod(stat.S_IMODE(data.stat().st_mode))
        flush_to_disk(path)
        commit(self.unfinished, self.final)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Accept any folder."""
        return True


def _parted(tensors: dict[str, Tensor], limit_bytes: int) -> list[dict[str, Tensor]]:
    """Tensors by file, of at most ``limit_bytes`` where one is not larger."""
    files: list[dict[str, Tensor]] = []
    size = limit_bytes
    for key, tensor in tensors.items():
        if not files or size + tensor.nbytes > limit_bytes:
            files.append({})
            size = 0
        files[-1][key] = tensor
        size += tensor.nbytes
    return files


def _key(item: WriteItem) -> str:
    offsets = item.index.offset or ()
    return f"{item.index.fqn}@{','.join(str(offset) for offset in offsets)}"


def _resolved(planner: SavePlanner, item: WriteItem) -> Tensor:
    value = planner.resolve_data(item)
    if not isinstance(value, Tensor):
        raise TypeError(f"{item.index.fqn} is no tensor, and nothing else is kept")
    return value.detach().cpu().contiguous()


def _result(
    item: WriteItem, key: str, file: str, tensor: Tensor, written: WrittenRange
) -> WriteResult:
    """Write result of a slice."""
    stored = StoredSlice(
        offsets=tuple(item.index.offset or ()),
        sizes=tuple(tensor.shape),
        file=file,
        key=key,
        first_byte=written.first,
        bytes=written.bytes,
        digest=written.digest,
    )
    return _as_result(item.index.fqn, stored)


def _as_result(name: str, stored: StoredSlice) -> WriteResult:
    return WriteResult(MetadataIndex(name, stored.offsets), stored.bytes, stored)


__all__ = ["CheckpointWriter", "data_file"]
