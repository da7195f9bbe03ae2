"""A rank's slice of a named tensor, for torch's checkpoint planner.

torch picks the writer of a replicated slice, checks that slices cover each tensor once, and finds
the pieces that another plan needs. Its driver pickles those plans between ranks; here they travel
as JSON, and every rank computes the same.
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
    """Inverse of :func:`dtype_name`.

    Raises:
        ValueError: torch has no such type.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name} is no type of torch's")
    return dtype


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A rank's box at ``offsets`` of a tensor of shape ``full_shape``.

    Rows may lie apart in the whole, as those of split experts. Then ``runs`` lists (first row in
    the whole, number of rows) in order.
    """

    tensor: Tensor
    full_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def unsplit(cls, tensor: Tensor) -> TensorSlice:
        """A tensor that is not split."""
        return cls(tensor, tuple(tensor.shape), (0,) * tensor.dim())

    def with_tensor(self, tensor: Tensor) -> TensorSlice:
        """The same box of another tensor."""
        return replace(self, tensor=tensor)

    def contiguous_slices(self) -> list[TensorSlice]:
        """The slice as contiguous boxes that share its storage."""
        if not self.runs:
            return [self]
        slices, first = [], 0
        for row, count in self.runs:
            offsets = (row, *self.offsets[1:])
            slices.append(TensorSlice(self.tensor[first : first + count], self.full_shape, offsets))
            first += count
        return slices

    def rows(self, name: str) -> list[SliceRecord]:
        """Records for other ranks, one per box."""
        dtype = dtype_name(self.tensor.dtype)
        return [
            (name, dtype, [*box.full_shape], [*box.offsets], list(box.tensor.shape))
            for box in self.contiguous_slices()
        ]

    def at(self, offsets: Sequence[int] | None) -> Tensor:
        """Values of the box that begins at ``offsets``."""
        contiguous_slices = self.contiguous_slices()
        if len(contiguous_slices) == 1:
            return contiguous_slices[0].tensor
        return next(box.tensor for box in contiguous_slices if box.offsets == tuple(offsets or ()))

    def within(self, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """Values of a box inside one of the slice's.

        Raises:
            ValueError: the slice does not hold it.
        """
        for box in self.contiguous_slices():
            pairs = [
                (a - b, a - b + n) for a, b, n in zip(offsets, box.offsets, sizes, strict=True)
            ]
            ends = zip(pairs, box.tensor.shape, strict=True)
            if all(first >= 0 and last <= size for (first, last), size in ends):
                return box.tensor[tuple(slice(first, last) for first, last in pairs)]
        raise ValueError(f"no box at {list(offsets)} of {list(sizes)}")

    def size(self) -> torch.Size:
        """Whole shape, which torch compares with the saved one."""
        return torch.Size(self.full_shape)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [
            ChunkStorageMetadata(torch.Size(box.offsets), box.tensor.shape)
            for box in self.contiguous_slices()
        ]


TensorSlices = Mapping[str, TensorSlice]


def write_item(row: SliceRecord) -> WriteItem:
    """A box as torch's write item."""
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
    """torch's planner over slices: checked for gaps and overlaps."""

    def __init__(self, slices: TensorSlices | None = None) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.state_dict: dict[str, Any] = dict(slices or {})

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """Values of a box, which may be a part of a slice's."""
        tensor_slice: TensorSlice = self.state_dict[write_item.index.fqn]
        data = write_item.tensor_data
        if data is None:
            raise TypeError(f"{write_item.index.fqn} is no tensor, and nothing else is kept")
        return tensor_slice.within(data.chunk.offsets, data.chunk.sizes)


def plan_saves(records: Sequence[Sequence[SliceRecord]]) -> tuple[list[SavePlan], Metadata]:
    """Save plans of all ranks and resulting tensors, equal on every rank.

    Raises:
        ValueError: slices leave a gap in a tensor, or overlap.
    """
    from .write_balance import share_out

    plans = [SavePlan([write_item(row) for row in rows]) for rows in share_out(records)]
    return SliceSavePlanner().create_global_plan(plans)


class SliceLoadPlanner(DefaultLoadPlanner):
    """torch's planner over slices to be filled."""

    def __init__(self, slices: TensorSlices, metadata: Metadata) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.state_dict = self.original_state_dict = dict(slices)
        self.metadata = metadata
        self.is_coordinator = True

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Target of a box's values."""
        tensor_slice: TensorSlice = self.state_dict[index.fqn]
        return tensor_slice.at(index.offset)


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
