"""A rank's part of a named tensor, in the form that torch's distributed checkpoint plans with.

torch says who writes a part that several ranks hold, that all parts together are each tensor once,
and which pieces of saved parts make up the parts that another plan needs. Its own driver sends
those plans between ranks as pickles; here they travel as JSON, and every rank works out the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

Row = tuple[str, str, list[int], list[int], list[int]]
"""A part without its numbers, as JSON: name, type, whole shape, offsets, shape."""


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
class Part:
    """``tensor`` is the box of a tensor of shape ``whole`` that begins at ``offsets``."""

    tensor: Tensor
    whole: tuple[int, ...]
    offsets: tuple[int, ...]

    @classmethod
    def all_of(cls, tensor: Tensor) -> Part:
        """A tensor that is not cut."""
        return cls(tensor, tuple(tensor.shape), (0,) * tensor.dim())

    def row(self, name: str) -> Row:
        """What other ranks need to know of it."""
        shape = list(self.tensor.shape)
        return name, dtype_name(self.tensor.dtype), [*self.whole], [*self.offsets], shape

    def size(self) -> torch.Size:
        """The shape of the whole tensor, which torch holds against the saved one."""
        return torch.Size(self.whole)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(torch.Size(self.offsets), self.tensor.shape)]


Parts = Mapping[str, Part]


def write_item(row: Row) -> WriteItem:
    """A part as torch plans to write it."""
    name, dtype, whole, offsets, shape = row
    return WriteItem(
        index=MetadataIndex(name, torch.Size(offsets)),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(offsets), torch.Size(shape)),
            properties=TensorProperties(dtype=dtype_of(dtype)),
            size=torch.Size(whole),
        ),
    )


class PartSavePlanner(DefaultSavePlanner):
    """torch's planner over parts: deduplicated over ranks and checked for gaps and overlaps."""

    def __init__(self, parts: Parts | None = None) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.state_dict: dict[str, Any] = dict(parts or {})

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        """The numbers of a part."""
        found: Tensor = self.state_dict[index.fqn].tensor
        return found


def plan_saves(every: Sequence[Sequence[Row]]) -> tuple[list[SavePlan], Metadata]:
    """Who writes what, and the tensors that this makes; the same on every rank.

    Args:
        every: each rank's rows, by rank.

    Raises:
        ValueError: parts leave a gap in a tensor, or overlap.
    """
    plans = [SavePlan([write_item(row) for row in rows]) for rows in every]
    return PartSavePlanner().create_global_plan(plans)


class PartLoadPlanner(DefaultLoadPlanner):
    """torch's planner over parts that are to be filled."""

    def __init__(self, parts: Parts, metadata: Metadata) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.state_dict = self.original_state_dict = dict(parts)
        self.metadata = metadata
        self.is_coordinator = True

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Where the numbers of a part go."""
        found: Tensor = self.state_dict[index.fqn].tensor
        return found


__all__ = [
    "Part",
    "PartLoadPlanner",
    "PartSavePlanner",
    "Parts",
    "Row",
    "dtype_name",
    "dtype_of",
    "plan_saves",
    "write_item",
]
