"""Reader of safetensors files, with or without an index; loads no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....spec.codec import parse_json
from ....spec.errors import InputError
from ..storage.paths import CheckpointPath, document_text
from .archive import ALLOWED, open_file
from .source import (
    Box,
    ByteRange,
    DamagedFileError,
    ForeignSource,
    ForeignTensor,
    checked_tensor,
)

INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
DTYPES = {
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"F8_{kind.upper()}": f"float8_{kind}" for kind in ("e5m2", "e4m3fnuz", "e5m2fnuz")},
    "F8_E4M3": "float8_e4m3fn",
    "BF16": "bfloat16",
    "BOOL": "bool",
    "C64": "complex64",
}
"""torch's names of a safetensors header's types."""
LENGTH_BYTES = 8
"""Of the length of a header, at a file's start."""
MAX_HEADER_BYTES = 100_000_000
"""safetensors' own limit."""
SAFETENSORS = "safetensors"


def read_safetensors(folder: CheckpointPath) -> ForeignSource:
    """Tensors of a folder's indexed files, or of all of them.

    Raises:
        DamagedFileError: a torn file.
        InputError: a file outside the folder, a tensor that is there twice.
    """
    tensors: dict[str, ForeignTensor] = {}
    for path in _files(folder):
        for name, tensor in _tensors(path):
            if name in tensors:
                raise InputError(str(folder), f"{name} in two files", "each tensor in one file")
            tensors[name] = tensor
    return ForeignSource(SAFETENSORS, folder, tensors)


def _files(folder: CheckpointPath) -> list[CheckpointPath]:
    index = folder / INDEX
    if not index.is_file():
        return sorted(folder.glob(f"*{SUFFIX}"), key=str)
    document = parse_json(document_text(index, "an index of weights"), str(index))
    names = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(names, dict) or not all(isinstance(x, str) for x in names.values()):
        raise InputError(str(index), "no weight_map", "an object of tensor and file names")
    for name in sorted(set(names.values())):
        if Path(name).name != name:
            raise InputError(str(index), f"file {name}", "files in the same folder")
    return [folder / name for name in sorted(set(names.values()))]


def _tensors(path: CheckpointPath) -> Iterator[tuple[str, ForeignTensor]]:
    with open_file(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
            raise DamagedFileError(str(path), f"a header of {length} bytes", ALLOWED)
        try:
            text = file.read(length).decode()
        except UnicodeDecodeError:
            raise DamagedFileError(str(path), "a header that is no text", ALLOWED) from None
    header = parse_json(text, str(path))
    if not isinstance(header, dict):
        raise InputError(str(path), "a header that is no object", ALLOWED)
    begin = LENGTH_BYTES + length
    for name, row in header.items():
        if name != "__metadata__":
            yield name, checked_tensor(str(path), name, _tensor(path, name, row, begin, size))


def _tensor(path: CheckpointPath, name: str, row: Any, begin: int, size: int) -> ForeignTensor:
    try:
        shape, (first, last) = tuple(row["shape"]), row["data_offsets"]
        dtype = DTYPES[row["dtype"]]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: {name}", "no type, shape or bytes", ALLOWED) from None
    if not all(type(item) is int for item in (*shape, first, last)):
        raise InputError(f"{path}: {name}", "a shape that is no list of numbers", ALLOWED)
    box = Box((0,) * len(shape), shape, ByteRange(path.name, begin + first, last - first))
    tensor = ForeignTensor(dtype, shape, (box,))
    if not 0 <= first <= last <= size - begin or last - first != tensor.bytes:
        given = f"bytes {first} to {last} of {size - begin}"
        raise DamagedFileError(f"{path}: {name}", given, ALLOWED)
    return tensor
