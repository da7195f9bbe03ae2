"""Sources of initial weights: seeded at random, or a checkpoint's.

The executor reads a rank's part, the reference the whole, from the same source, so that a run can
be compared with the reference whatever it starts from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from torch import Tensor

from ...spec.model.layer_parameters import ParameterSpec

SAMPLES, SAMPLED_BYTES = 8, 1 << 16
Ranges = tuple[tuple[int, int], ...]
"""First and last (exclusive) index of a part along each dimension of a whole tensor."""


def full_ranges(spec: ParameterSpec) -> Ranges:
    """The whole of a parameter."""
    return tuple((0, size) for size in spec.shape)


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")


def sampled_digest(files: Iterable[Path]) -> str:
    """Short digest of files of this machine."""
    return sampled_bytes((path.name, partial(_opened, path)) for path in files)


def sampled_bytes(files: Iterable[tuple[str, Callable[[], BinaryIO]]]) -> str:
    """Short digest of files: names, sizes and samples, the headers among them."""
    digest = hashlib.sha256()
    for name, opened in files:
        with opened() as file:
            size = file.seek(0, 2)
            digest.update(f"{name}:{size}".encode())
            for sample in range(SAMPLES):
                file.seek(sample * size // SAMPLES)
                digest.update(file.read(SAMPLED_BYTES))
    return digest.hexdigest()[:12]


class WeightSource(Protocol):
    """A source of initial weights."""

    def read_range(self, index: int, spec: ParameterSpec, ranges: Ranges) -> Tensor:
        """Part of a parameter, float32 on the CPU, in its own storage.

        A tied projection is read as the embedding's table; ``index`` is the layer's in the model.
        """
