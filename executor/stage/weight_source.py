"""Sources of initial weights: seeded at random, or a checkpoint's.

The executor reads a rank's part, the reference the whole, from the same source, so that a run can
be compared with the reference whatever it starts from.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ...spec.model.layer_parameters import ParameterSpec

Ranges = tuple[tuple[int, int], ...]
"""First and last (exclusive) index of a part along each dimension of a whole tensor."""


def full_ranges(spec: ParameterSpec) -> Ranges:
    """The whole of a parameter."""
    return tuple((0, size) for size in spec.shape)


class WeightSource(Protocol):
    """A source of initial weights."""

    def read_range(self, index: int, spec: ParameterSpec, ranges: Ranges) -> Tensor:
        """Part of a parameter, float32 on the CPU, in its own storage.

        A tied projection is read as the embedding's table; ``index`` is the layer's in the model.
        """
