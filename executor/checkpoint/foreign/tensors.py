"""Numbers of a source, by tensor and range: only the rows asked for are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import BinaryIO

import torch
from torch import Tensor

from ....spec.errors import InputError
from ...stage.weight_source import Ranges
from ..tensor_slices import dtype_of
from .archive import ALLOWED, Archive, StoredStorage, open_file
from .source import ITEM_BYTES, Box, ByteRange, DamagedFileError, ForeignSource, ForeignTensor


class TensorReader:
    """Reads ranges of a source's tensors.

    ``bytes_read``: bytes of numbers read so far.
    """

    def __init__(self, source: ForeignSource) -> None:
        self.source = source
        self.bytes_read = 0
        self._storages: dict[ByteRange, StoredStorage] = {}

    def read(self, name: str, ranges: Ranges | None = None) -> Tensor:
        """A range of a tensor, in its own type, on the CPU; all of it without ``ranges``.

        Raises:
            InputError: a torn file, or an archive of another tensor.
        """
        tensor = self.source.tensors[name]
        wanted = tuple((0, size) for size in tensor.shape) if ranges is None else ranges
        result = torch.empty([stop - start for start, stop in wanted], dtype=dtype_of(tensor.dtype))
        for box in tensor.boxes:
            pairs = [
                (max(start, first), min(stop, first + size))
                for (start, stop), first, size in zip(wanted, box.offsets, box.sizes, strict=True)
            ]
            if all(start < stop for start, stop in pairs):
                inside = [(a - o, b - o) for (a, b), o in zip(pairs, box.offsets, strict=True)]
                target = [slice(a - w, b - w) for (a, b), (w, _) in zip(pairs, wanted, strict=True)]
                result[tuple(target)] = self._read_box(name, tensor, box, inside)
        return result

    def _read_box(
        self, name: str, tensor: ForeignTensor, box: Box, inside: Sequence[tuple[int, int]]
    ) -> Tensor:
        stored = self._stored(name, tensor, box)
        with open_file(self.source.folder / stored.place.file) as file:
            if stored.strides != _contiguous(stored.sizes):
                flat = self._numbers(file, stored, 0, stored.place.bytes)
                whole = flat.as_strided(stored.sizes, stored.strides)
                return whole[tuple(slice(a, b) for a, b in inside)]
            if not inside:
                return self._numbers(file, stored, 0, stored.place.bytes).view(())
            return self._rows(file, stored, inside)

    def _rows(
        self, file: BinaryIO, stored: StoredStorage, inside: Sequence[tuple[int, int]]
    ) -> Tensor:
        """Read along the first dimension, leaving out indices of it that are not asked for."""
        (start, stop), rest = inside[0], inside[1:]
        row_bytes = stored.strides[0] * ITEM_BYTES[stored.dtype]
        if len(rest) > 1 and stop - start == 1:  # as a layer of stacked ones
            place = stored.place
            first = ByteRange(place.file, place.first + start * row_bytes, row_bytes)
            part = StoredStorage(stored.dtype, stored.sizes[1:], stored.strides[1:], first)
            return self._rows(file, part, rest).unsqueeze(0)
        flat = self._numbers(file, stored, start * row_bytes, (stop - start) * row_bytes)
        rows = flat.view(stop - start, *stored.sizes[1:])
        return rows[(slice(None), *(slice(a, b) for a, b in rest))]

    def _numbers(self, file: BinaryIO, stored: StoredStorage, first: int, size: int) -> Tensor:
        data = bytearray(size)
        file.seek(stored.place.first + first)
        if file.readinto(data) != size:  # type: ignore[attr-defined]
            path = str(self.source.folder / stored.place.file)
            raise DamagedFileError(path, "a torn file", ALLOWED)
        self.bytes_read += size
        if not size:
            return torch.empty(0, dtype=dtype_of(stored.dtype))
        return torch.frombuffer(data, dtype=dtype_of(stored.dtype))

    def _stored(self, name: str, tensor: ForeignTensor, box: Box) -> StoredStorage:
        """Place of a box's numbers; an archive is looked into once."""
        if not box.archive:
            return StoredStorage(tensor.dtype, box.sizes, _contiguous(box.sizes), box.place)
        if box.place not in self._storages:
            self._storages[box.place] = archived_box(self.source, name, tensor, box)
        return self._storages[box.place]


def archived_box(
    source: ForeignSource, name: str, tensor: ForeignTensor, box: Box, check: bool = False
) -> StoredStorage:
    """Place of an archived box's numbers; with ``check`` all its bytes are compared.

    Raises:
        InputError: it holds another type or shape, or bytes that were not written.
    """
    with Archive(source.folder, box.place) as archive:
        if check:
            archive.check()
        value = archive.value()
    if not isinstance(value, StoredStorage) or math.prod(value.sizes) != box.elements:
        raise InputError(f"{source.folder}: {name}", "another tensor in its file", ALLOWED)
    if (value.dtype, value.sizes) != (tensor.dtype, box.sizes):
        given = f"{value.dtype} of shape {list(value.sizes)} in its file"
        raise InputError(f"{source.folder}: {name}", given, f"{tensor.dtype} {list(box.sizes)}")
    return value


def _contiguous(sizes: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if sizes else ()
