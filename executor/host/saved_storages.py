"""Storages that a piece of a model saves for its backward.

Views of one storage are one entry, so what several operations save moves once. A storage's rows
are what its outermost dimension counts: tokens, where activations are (seq, batch, width).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SavedView:
    """A saved tensor: the number of its storage, and how it lies there."""

    number: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, storage: Tensor) -> Tensor:
        """The tensor in the bytes of a storage like its own."""
        return storage.view(self.dtype).as_strided(self.size, self.stride, self.offset)


@dataclass(slots=True)
class SavedStorage:
    """A storage's bytes, None while they are elsewhere.

    ``size_bytes``: how many; ``rows``: of its outermost dimension; ``is_flat``: rows of tokens and
    samples together; ``views``: still to be read.
    """

    data: Tensor | None
    size_bytes: int
    rows: int
    is_flat: bool
    views: int = 0


@dataclass(slots=True)
class SavedStorages:
    """Storages of saved tensors, by number."""

    storages: list[SavedStorage] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    def add(self, tensor: Tensor) -> SavedView:
        """Note a tensor that will be read once."""
        place = address(tensor)
        if place not in self._numbers:
            self._numbers[place] = len(self.storages)
            data = raw_bytes(tensor)
            self.storages.append(SavedStorage(data, data.numel(), _rows(tensor), tensor.dim() == 1))
        number = self._numbers[place]
        self.storages[number].views += 1
        size, stride = tuple(tensor.shape), tensor.stride()
        return SavedView(number, tensor.dtype, size, stride, int(tensor.storage_offset()))

    def unread(self, view: SavedView) -> None:
        """Take back a view; a storage that nobody else saves holds no bytes."""
        storage = self.storages[view.number]
        storage.views -= 1
        if storage.views or storage.data is None:
            return
        del self._numbers[address(storage.data)]  # others may lie there once it is freed
        storage.data = None

    def read(self, view: SavedView) -> Tensor:
        """A noted tensor; its storage goes with the last of its views."""
        storage = self.storages[view.number]
        if storage.data is None:
            raise RuntimeError("a saved tensor was read before it came back, or too often")
        tensor = view.of(storage.data)
        storage.views -= 1
        if not storage.views:
            storage.data = None
        return tensor

    def let_go(self) -> None:
        """Hold no bytes until they are put back."""
        self._numbers.clear()
        for storage in self.storages:
            storage.data = None


def address(tensor: Tensor) -> int:
    """Where a tensor's storage begins."""
    return tensor.untyped_storage().data_ptr()


def addresses(tensors: Iterable[Tensor]) -> frozenset[int]:
    """Where the storages of some tensors begin."""
    return frozenset(map(address, tensors))


def raw_bytes(tensor: Tensor) -> Tensor:
    """A tensor's whole storage, as bytes."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0).view(torch.int8)


def _rows(tensor: Tensor) -> int:
    sizes = zip(tensor.stride(), tensor.shape, strict=True)
    return max((pair for pair in sizes if pair[1] > 1), default=(0, 1))[1]


__all__ = ["SavedStorages", "SavedView", "address", "addresses", "raw_bytes"]
