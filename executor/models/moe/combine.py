"""Combination of the experts' rows into tokens.

Runs what ``shardwright.costmodel.ops.moe.combine`` prices in its plain form, in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .order import RoutedRows, permute_weights, sum_by_token


class _Combine(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weights: Tensor, token: Tensor, shape: torch.Size
    ) -> Tensor:
        ctx.save_for_backward(rows, weights, token)
        return sum_by_token(rows * weights, token, shape).to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows, weights, token = ctx.saved_tensors
        grad_by_row = grads[0].flatten(0, 1).to(weights.dtype).index_select(0, token)
        grad_rows = torch.mul(grad_by_row, weights, out=torch.empty_like(rows))
        grad_weights = grad_by_row.mul_(rows).sum(1, keepdim=True)
        return grad_rows, grad_weights, None, None


def combine(outputs: Tensor, weights: Tensor, rows: RoutedRows, shape: torch.Size) -> Tensor:
    """Weighted float32 sum of each token's rows, of shape (seq, batch, width).

    ``outputs`` of the experts are (rows, width), ``weights`` (tokens, topk).
    """
    row_weights = permute_weights(weights, rows)
    out: Tensor = _Combine.apply(outputs, row_weights, rows.token, shape)  # type: ignore[no-untyped-call]
    return out


__all__ = ["combine"]
