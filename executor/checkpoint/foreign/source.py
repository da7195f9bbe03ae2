"""ForeignSource: tensors of a checkpoint as boxes and byte ranges; loads no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....spec.errors import InputError
from ..storage.paths import CheckpointPath

ITEM_BYTES = {
    **{f"float{bits}": bits // 8 for bits in (16, 32, 64)},
    **{f"int{bits}": bits // 8 for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": bits // 8 for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("bool", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    "bfloat16": 2,
    "complex64": 8,
}
"""Bytes of a number, by torch's name of its type."""
MAX_TENSOR_ELEMENTS = 1 << 50
MAX_DIMS = 64


class DamagedFileError(InputError):
    """A file that is missing, torn, or has other bytes than its writer left."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes of a file in the checkpoint's folder."""

    file: str
    first: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a tensor, and its bytes.

    ``archive``: the bytes are a zip archive of torch's with the box as its one storage, rather
    than the numbers alone.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    place: ByteRange
    archive: bool = False

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True)
class ForeignTensor:
    """A tensor: torch's name of its type, whole shape, boxes that tile it."""

    dtype: str
    shape: tuple[int, ...]
    boxes: tuple[Box, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all its numbers."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def _no_value(name: str) -> Any:
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class ForeignSource:
    """A checkpoint of any framework.

    ``kind``: one of ``KINDS``; ``values``: names of what is no tensor; ``read_value`` gives one;
    ``step``: optimizer steps done, None where it is not said. ``replicas`` of a box are left out.
    """

    kind: str
    folder: CheckpointPath
    tensors: Mapping[str, ForeignTensor]
    values: tuple[str, ...] = ()
    read_value: Callable[[str], Any] = _no_value
    common: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    @property
    def files(self) -> list[str]:
        """Its data files, sorted."""
        return sorted({box.place.file for t in self.tensors.values() for box in t.boxes})


def checked_tensor(where: str, name: str, tensor: ForeignTensor) -> ForeignTensor:
    """A tensor whose boxes tile it.

    Raises:
        InputError: a type that is not read, a box beyond the tensor, a gap or an overlap.
    """
    shape, path = tensor.shape, f"{where}: {name}"
    if tensor.dtype not in ITEM_BYTES:
        raise InputError(path, f"numbers of type {tensor.dtype}", "one of " + ", ".join(ITEM_BYTES))
    if len(shape) > MAX_DIMS or any(size < 0 for size in shape):
        raise InputError(path, f"shape {list(shape)[:8]}", "sizes of at least 0")
    if math.prod(shape) > MAX_TENSOR_ELEMENTS:
        raise InputError(path, f"shape {list(shape)[:8]}", f"{MAX_TENSOR_ELEMENTS} elements")
    for box in tensor.boxes:
        ends = zip(box.offsets, box.sizes, shape, strict=False)
        fits = len(box.offsets) == len(box.sizes) == len(shape)
        if not fits or any(a < 0 or n < 0 or a + n > whole for a, n, whole in ends):
            raise InputError(path, "a part beyond the tensor", f"parts of {list(shape)}")
        if box.place.bytes < box.elements * ITEM_BYTES[tensor.dtype]:
            given = f"{box.place.bytes} bytes for a part of {box.elements} elements"
            raise InputError(path, given, "as many bytes as its numbers have")
    if sum(box.elements for box in tensor.boxes) != math.prod(shape) or _overlap(tensor.boxes):
        raise InputError(path, "parts with a gap or an overlap", f"parts that tile {list(shape)}")
    return tensor


def _overlap(boxes: Sequence[Box]) -> bool:
    """True if two boxes share an element; boxes are swept along the first dimension."""
    live: list[Box] = []
    for box in sorted((box for box in boxes if box.elements), key=lambda box: box.offsets):
        live = [b for b in live if not b.offsets or b.offsets[0] + b.sizes[0] > box.offsets[0]]
        if any(_share(box, other) for other in live):
            return True
        live.append(box)
    return False


def _share(one: Box, other: Box) -> bool:
    rows = zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    return all(a < b + m and b < a + n for a, n, b, m in rows)
