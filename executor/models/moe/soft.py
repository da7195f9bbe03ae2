"""SoftMoE: slots of experts mix the tokens of a sample, tokens the outputs of slots.

Puigcerver, arXiv:2308.00951, algorithm 1. Runs what ``shardwright.costmodel.ops.moe.soft`` prices,
in the same order. Rows are sorted by expert, then by sample and slot.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ....spec.model.feed_forward import Moe


def _softmax(logits: Tensor, dim: int) -> Tensor:
    return logits.float().softmax(dim)


def _softmax_backward(grad: Tensor, shares: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    out: Tensor = torch._softmax_backward_data(grad.float(), shares, dim, shares.dtype)
    return out.to(dtype)


class _MixTokens(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, logits: Tensor, experts: int) -> Tensor:
        shares = _softmax(logits, 0)
        slots = torch.bmm(shares.to(x.dtype).permute(1, 2, 0), x.transpose(0, 1))
        ctx.save_for_backward(x, shares)
        ctx.experts, ctx.dtype = experts, logits.dtype
        by_expert = slots.view(x.shape[1], experts, -1, x.shape[2]).transpose(0, 1)
        return by_expert.contiguous().view(-1, x.shape[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, shares = ctx.saved_tensors
        grad = _by_sample(grads[0], ctx.experts, x.shape[1])
        grad_x = torch.bmm(shares.to(x.dtype).transpose(0, 1), grad).transpose(0, 1)
        grad_shares = torch.bmm(x.transpose(0, 1), grad.transpose(1, 2)).transpose(0, 1)
        return grad_x, _softmax_backward(grad_shares, shares, 0, ctx.dtype), None


class _MixSlots(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, logits: Tensor, experts: int) -> Tensor:
        shares = _softmax(logits, 2)
        slots = _by_sample(rows, experts, logits.shape[1])
        ctx.save_for_backward(slots, shares)
        ctx.experts, ctx.dtype = experts, logits.dtype
        return torch.bmm(shares.to(rows.dtype).transpose(0, 1), slots).transpose(0, 1).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        slots, shares = ctx.saved_tensors
        grad = grads[0].transpose(0, 1)
        grad_slots = torch.bmm(shares.to(slots.dtype).permute(1, 2, 0), grad)
        grad_shares = torch.bmm(grad, slots.transpose(1, 2)).transpose(0, 1)
        by_expert = grad_slots.view(len(slots), ctx.experts, -1, slots.shape[2]).transpose(0, 1)
        grad_rows = by_expert.contiguous().view(-1, slots.shape[2])
        return grad_rows, _softmax_backward(grad_shares, shares, 2, ctx.dtype), None


def _by_sample(rows: Tensor, experts: int, samples: int) -> Tensor:
    """(samples, experts · slots, width) of rows by expert: a copy."""
    width = rows.shape[1]
    return rows.view(experts, samples, -1, width).transpose(0, 1).reshape(samples, -1, width)


def mix_tokens(x: Tensor, logits: Tensor, moe: Moe) -> Tensor:
    """(experts · batch · slots, width) rows of (seq, batch, width) tokens."""
    rows: Tensor = _MixTokens.apply(x, logits, moe.experts)  # type: ignore[no-untyped-call]
    return rows


def mix_slots(rows: Tensor, logits: Tensor, moe: Moe) -> Tensor:
    """(seq, batch, width) tokens of the experts' rows."""
    out: Tensor = _MixSlots.apply(rows, logits, moe.experts)  # type: ignore[no-untyped-call]
    return out


__all__ = ["mix_slots", "mix_tokens"]
