"""TensorPiece: a parameter's place in a checkpoint tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ...spec.model.layer_parameters import ParameterSpec
from ...spec.model.layers import Layer
from ..stage.weight_source import Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPiece:
    """A checkpoint tensor, and the rows that are one of our parameters.

    ``shape``: in the checkpoint. ``transposed``: stored as (in, out). ``first``: the parameter's
    first row, in our orientation, in a fused tensor. ``expert``: the parameter's row where a
    checkpoint has one tensor per expert; None for all of it.
    """

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    first: int = 0
    expert: int | None = None

    def place(self, ranges: Ranges) -> tuple[slice, ...]:
        """Locate the parameter's ``ranges``, by dimension."""
        rows = list(ranges if self.expert is None else ranges[1:])
        rows[0] = (rows[0][0] + self.first, rows[0][1] + self.first)
        if self.transposed:
            rows.reverse()
        return tuple(slice(start, stop) for start, stop in rows)

    def holds(self, ranges: Ranges) -> bool:
        """Return True if the tensor holds some of ``ranges``."""
        return self.expert is None or ranges[0][0] <= self.expert < ranges[0][1]

    def put(self, value: Tensor, tensor: Tensor) -> None:
        """Write the whole parameter ``value`` into the whole ``tensor``."""
        part = value if self.expert is None else value[self.expert]
        target = tensor.t() if self.transposed else tensor
        target.narrow(0, self.first, part.shape[0]).copy_(part)


TensorPieces = Callable[[int, Layer, ParameterSpec], tuple[TensorPiece, ...]]
"""``pieces(index, layer, spec)``: the tensors that hold a parameter of the model's layer
``index``; of several, each holds an expert."""
