"""A rank's part of a named tensor, in the form that torch's distributed checkpoint plans with.

torch says who writes a part that several ranks hold, that all parts together are each tensor once,
and which pieces of saved parts make up the parts that another plan needs. Its own driver sends
those plans between ranks as pickles; here they travel as JSON, and every rank works out the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

SliceRecord = tuple[str, str, list[int], list[int], list[int]]
"""A box without its numbers, as JSON: name, type, whole shape, offsets, shape."""


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` of ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The inverse of :func:`dtype_name`.

    Raises:
        ValueError: torch has no such type.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name} is no type of torch's")
    return found


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """What a rank holds of a tensor of shape ``full_shape``: the box that begins at ``offsets``.

    Rows may lie apart in the whole, as those of experts that are split themselves. Then ``runs``
    says where: first row in the whole and number of rows, for all of the part's rows in order.
    """

    tensor: Tensor
    full_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def unsplit(cls, tensor: Tensor) -> TensorSlice:
        """A tensor that is not cut."""
        return cls(tensor, tuple(tensor.shape), (0,) * tensor.dim())

    def like(self, tensor: Tensor) -> TensorSlice:
        """The same place of another tensor."""
        return replace(self, tensor=tensor)

    def contiguous_slices(self) -> list[TensorSlice]:
        """The part as boxes of the whole, which share its storage."""
        if not self.runs:
            return [self]
        found, first = [], 0
        for row, count in self.runs:
            offsets = (row, *self.offsets[1:])
            found.append(TensorSlice(self.tensor[first : first + count], self.full_shape, offsets))
            first += count
        return found

    def rows(self, name: str) -> list[SliceRecord]:
        """What other ranks need to know of it: a row for each of its boxes."""
        dtype = dtype_name(self.tensor.dtype)
        return [
            (name, dtype, [*box.full_shape], [*box.offsets], list(box.tensor.shape))
            for box in self.contiguous_slices()
        ]

    def at(self, offsets: Sequence[int] | None) -> Tensor:
        """The numbers of the box that begins at ``offsets``."""
        contiguous_slices = self.contiguous_slices()
        if len(contiguous_slices) == 1:
            return contiguous_slices[0].tensor
        return next(box.tensor for box in contiguous_slices if box.offsets == tuple(offsets or ()))

    def size(self) -> torch.Size:
        """The shape of the whole tensor, which torch holds against the saved one."""
        return torch.Size(self.full_shape)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [
            ChunkStorageMetadata(torch.Size(box.offsets), box.tensor.shape)
            for box in self.contiguous_slices()
        ]


TensorSlices = Mapping[str, TensorSlice]


def write_item(row: SliceRecord) -> WriteItem:
    """A box as torch plans to write it."""
    name, dtype, full_shape, offsets, shape = row
    return WriteItem(
        index=MetadataIndex(name, torch.Size(offsets)),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(offsets), torch.Size(shape)),
            properties=TensorProperties(dtype=dtype_of(dtype)),
            size=torch.Size(full_shape),
        ),
    )


class SliceSavePlanner(DefaultSavePlanner):
    """torch's planner over parts: deduplicated over ranks and checked for gaps and overlaps."""

    def __init__(self, parts: TensorSlices | None = None) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.state_dict: dict[str, Any] = dict(parts or {})

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        """The numbers of a box."""
        part: TensorSlice = self.state_dict[index.fqn]
        return part.at(index.offset)


def plan_saves(every: Sequence[Sequence[SliceRecord]]) -> tuple[list[SavePlan], Metadata]:
    """Who writes what, and the tensors that this makes; the same on every rank.

    Args:
        every: each rank's rows, by rank.

    Raises:
        ValueError: parts leave a gap in a tensor, or overlap.
    """
    plans = [SavePlan([write_item(row) for row in rows]) for rows in every]
    return SliceSavePlanner().create_global_plan(plans)


class SliceLoadPlanner(DefaultLoadPlanner):
    """torch's planner over parts that are to be filled."""

    def __init__(self, parts: TensorSlices, metadata: Metadata) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.state_dict = self.original_state_dict = dict(parts)
        self.metadata = metadata
        self.is_coordinator = True

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Where the numbers of a box go."""
        part: TensorSlice = self.state_dict[index.fqn]
        return part.at(index.offset)


__all__ = [
    "SliceLoadPlanner",
    "SliceRecord",
    "SliceSavePlanner",
    "TensorSlice",
    "TensorSlices",
    "dtype_name",
    "dtype_of",
    "plan_saves",
    "write_item",
]
