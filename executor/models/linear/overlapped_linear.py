"""Tensor-parallel linear layers whose products overlap their collectives."""

from __future__ import annotations

from typing import Protocol

import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ..saved_results import NO_NAME, NO_NAMES, NamedResult
from ..tensor_parallel import TensorParallel


class Collectives(Protocol):
    """What two operations share: the process group of their collectives."""

    group: dist.ProcessGroup | None


class OverlappedLinear:
    """Column- and row-split products in place of ``tensor_parallel``'s.

    The group is set when a rank's groups are there.

    Args:
        collectives: given to both operations.
        column: the column-split product's operation.
        row: the row-split one's.
    """

    def __init__(
        self, collectives: Collectives, column: type[Function], row: type[Function]
    ) -> None:
        self._collectives, self._column, self._row = collectives, column, row

    def set_group(self, group: dist.ProcessGroup) -> None:
        """Give the products the group of their collectives."""
        self._collectives.group = group

    def column(
        self,
        x: Tensor,
        weights: list[Tensor],
        biases: list[Tensor | None],
        tp: TensorParallel,
        named: NamedResult = NO_NAMES,
    ) -> tuple[Tensor, ...]:
        """As :func:`tensor_parallel.column_linear`."""
        out: tuple[Tensor, ...] = self._column.apply(  # type: ignore[no-untyped-call]
            x, tp, self._collectives, named, *weights, *biases
        )
        return out

    def row(
        self,
        xs: list[Tensor],
        weights: list[Tensor],
        biases: list[Tensor | None],
        tp: TensorParallel,
        named: NamedResult = NO_NAME,
    ) -> Tensor:
        """As :func:`tensor_parallel.row_linear`."""
        out: Tensor = self._row.apply(  # type: ignore[no-untyped-call]
            tp, self._collectives, named, len(xs), *xs, *weights, *biases
        )
        return out


__all__ = ["OverlappedLinear"]
