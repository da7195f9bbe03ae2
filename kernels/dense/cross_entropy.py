"""Softmax cross-entropy over a vocabulary, optionally sharded across tensor-parallel ranks.

The logits' buffer is reused for the exponentials and then the gradient, so one (tokens, vocabulary)
float32 buffer lives from forward to backward. With a sharded vocabulary three small all-reduces
(maximum, target logit, sum) join the parts, as in Megatron-LM (Shoeybi et al., 2019, section 3).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ...spec.report.trace_marks import COMMUNICATE_TP
from ..marks import mark


class _CrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Tensor,
        scale: float,
        vocab_start: int,
        group: dist.ProcessGroup | None,
    ) -> Tensor:
        ctx.logits_dtype = logits.dtype
        work = logits.detach().float()
        highest = work.amax(-1, keepdim=True)
        if group is not None:
            with mark(COMMUNICATE_TP):
                dist.all_reduce(highest, dist.ReduceOp.MAX, group)
        work.sub_(highest)
        local, outside = local_targets(targets, vocab_start, work.shape[-1])
        target_logit = work.gather(-1, local).masked_fill_(outside, 0)
        total = work.exp_().sum(-1, keepdim=True)
        if group is not None:
            both = torch.cat((target_logit, total), dim=-1)
            with mark(COMMUNICATE_TP):
                dist.all_reduce(both, group=group)
            target_logit, total = both.split(1, dim=-1)  # type: ignore[no-untyped-call]
        ctx.save_for_backward(work, local, outside, total)
        ctx.scale = scale
        return (total.log() - target_logit).sum().mul_(scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        work, local, outside, total = ctx.saved_tensors
        work.div_(total)
        hit = torch.where(outside, 0.0, -1.0)
        work.scatter_add_(-1, local, hit)
        work.mul_(grads[0] * ctx.scale)
        return work.to(ctx.logits_dtype), None, None, None, None


def local_targets(targets: Tensor, start: int, size: int) -> tuple[Tensor, Tensor]:
    """Targets as (tokens, 1) indices into this shard, and the out-of-shard mask."""
    local = targets.reshape(-1, 1) - start
    outside = (local < 0).logical_or_(local >= size)
    return local.masked_fill_(outside, 0), outside


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    scale: float,
    vocab_start: int = 0,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """``scale`` times the sum of the tokens' losses.

    Args:
        logits: (tokens, local vocabulary); overwritten.
        targets: any shape with ``tokens`` elements, global token numbers.
        scale: usually one over the tokens of the global batch.
        vocab_start: first token number of this rank's shard.
        group: ranks that shard the vocabulary; None if it is whole.
    """
    out: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits, targets, scale, vocab_start, group
    )
    return out
