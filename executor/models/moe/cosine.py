"""X-MoE's scores: cosines of tokens and experts in a small width, over a learned temperature.

Chi, arXiv:2204.09179, section 3. The temperature is 0.07 · exp(-t) of a parameter t that starts at
0, so it stays above 0. Runs what ``shardwright.costmodel.ops.moe.cosine`` prices.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function

TEMPERATURE = 0.07
"""Its start: section 3, as in contrastive learning."""
SHORTEST = 1e-6


class _Cosine(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
        rows, row_length = _unit(x.flatten(0, 1).float())
        columns, length = _unit(weight.float())
        scale = temperature.float().exp() / TEMPERATURE
        out = rows.mm(columns.t()).mul_(scale)
        ctx.save_for_backward(rows, row_length, columns, length, scale, out)
        ctx.shape, ctx.dtypes = x.shape, (x.dtype, weight.dtype, temperature.dtype)
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, row_length, columns, length, scale, out = ctx.saved_tensors
        grad = grads[0].flatten(0, 1).float()
        grad_temperature = (grad * out).sum().view(1)
        grad = grad * scale
        grad_rows = _unit_backward(grad.mm(columns), rows, row_length)
        grad_columns = _unit_backward(grad.t().mm(rows), columns, length)
        of_x, of_weight, of_temperature = ctx.dtypes
        grad_x = grad_rows.to(of_x).view(ctx.shape)
        return grad_x, grad_columns.to(of_weight), grad_temperature.to(of_temperature)


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    length = x.norm(dim=-1, keepdim=True).clamp_min(SHORTEST)
    return x / length, length


def _unit_backward(grad: Tensor, unit: Tensor, length: Tensor) -> Tensor:
    along = (grad * unit).sum(-1, keepdim=True)
    return grad.addcmul_(unit, along, value=-1).div_(length)


def cosine_logits(x: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
    """Cosines of (seq, batch, width) ``x`` and (experts, width) ``weight``, by temperature."""
    out: Tensor = _Cosine.apply(x, weight, temperature)  # type: ignore[no-untyped-call]
    return out


__all__ = ["TEMPERATURE", "cosine_logits"]
