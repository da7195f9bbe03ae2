"""A data file of a checkpoint, written and digested in one pass.

The format is that of safetensors: the length of a header, the header (JSON), the numbers. Any open
file takes it, so that a far storage does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from torch import Tensor

from .foreign.safetensors_files import DTYPES, LENGTH_BYTES
from .manifest import StoredFile
from .storage.digests import Digest
from .tensor_slices import dtype_name

PIECE_BYTES = 1 << 20
"""Written, and digested while it is in the caches, at once."""
_NAMES = {name: code for code, name in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """Where a tensor lies in its file, and its digest."""

    first: int
    bytes: int
    digest: str


def write_slices(
    file: BinaryIO, tensors: Mapping[str, Tensor]
) -> tuple[StoredFile, dict[str, WrittenRange]]:
    """Write contiguous tensors of the host, by key, widest types first.

    Raises:
        OSError: the file takes no more.
    """
    keys = sorted(tensors, key=lambda key: (-tensors[key].element_size(), key))
    header = _header(tensors, keys)
    file.write(header)
    ranges, end = {}, len(header)
    for key in keys:
        numbers: Any = tensors[key].reshape(-1).view(torch.uint8).numpy()
        data = memoryview(numbers)
        digest = Digest()
        for first in range(0, len(data), PIECE_BYTES):
            piece = data[first : first + PIECE_BYTES]
            file.write(piece)
            digest.update(piece)
        ranges[key] = WrittenRange(end, len(data), digest.text())
        end += len(data)
    return StoredFile(end, len(header), hashlib.sha256(header).hexdigest()), ranges


def _header(tensors: Mapping[str, Tensor], keys: list[str]) -> bytes:
    rows, end = {}, 0
    for key in keys:
        tensor = tensors[key]
        first, end = end, end + tensor.nbytes
        dtype = _NAMES[dtype_name(tensor.dtype)]
        rows[key] = {"dtype": dtype, "shape": [*tensor.shape], "data_offsets": [first, end]}
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text
