"""Vocabulary projection and its cross-entropy, in chunks of tokens.

A chunk's logits become their gradient at once, which goes into the gradients of input and weight;
so only one chunk's logits ever live, and the backward pass has nothing left to do (the idea of
liger-kernel's fused linear cross-entropy, Hsu et al., 2024). Its own loop takes chunks of about as
many bytes as the input, whose products are too flat to be efficient with a large vocabulary; ours
takes ``spec.kernels.loss_chunks`` around the library's loss kernel.

Symbols: T tokens, H width, V vocabulary, c chunks. 6·T·H·V FLOPs; T·V logits written once and read
twice. T = 8192, V = 128,256, bf16: 0.5 GiB of logits live in place of 2 in bf16 and 4 in float32.
Where tensor-parallel ranks split the vocabulary, each chunk's maxima, then its target logits and
sums, are reduced over them, and the input's gradient at the end: 2c small all-reduces in place of
the loss's two. 2^20 tokens of 32,000 words over 8 ranks: 0.25 GiB a rank in place of 16 in float32.
Limits: the weight's gradient is summed over chunks in the weight's type, so in bf16 it is rounded c
times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ...spec.report.trace_marks import COMMUNICATE_TP
from ...spec.report.work_items import loss_chunks
from ..dispatch import Dispatcher, Family, Variant
from ..fused import liger_unsupported, operation, power_of_two
from ..marks import mark
from .cross_entropy import local_targets


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularySplit:
    """A rank's part of a split vocabulary.

    ``start``: its first token number. ``group``: the ranks. ``gather`` joins their parts of an
    input of (seq, batch, width); ``reduce`` sums its gradient and leaves this rank's part.
    """

    start: int
    group: dist.ProcessGroup
    gather: Callable[[Tensor], Tensor]
    reduce: Callable[[Tensor], Tensor]


LossInPlace = Callable[[Tensor, Tensor, Tensor, float], None]
"""(logits, targets, losses, scale): logits become the gradient of ``scale`` times the loss."""
NO_TOKEN = -100
"""No target is this: the library's mark of tokens to leave out."""
MAX_BLOCK, WARPS = 32768, 32
"""Words that a program of the kernel takes at once, and its warps, as the library has them."""
UNUSED_ARGUMENTS: dict[str, Any] = {
    "weight_ptr": None,
    "z_loss_ptr": None,
    "token_accuracy_ptr": None,
    "token_accuracy_stride": 0,
    "predicted_tokens_ptr": None,
    "predicted_tokens_stride": 0,
    "sum_non_ignore_weight": 0.0,
    "weight_sum": 0.0,
    "lse_square_scale": 0.0,
    "label_smoothing": 0.0,
    "softcap": None,
    "RETURN_Z_LOSS": False,
    "RETURN_TOKEN_ACCURACY": False,
    "RETURN_PREDICTED_TOKENS": False,
    "HAS_WEIGHT": False,
    "HAS_SOFTCAPPING": False,
    "HAS_GRADIENTS": True,
}
"""What the library's kernel could do beside: none of it."""


def _fake_loss(logits: Tensor, targets: Tensor, losses: Tensor, scale: float) -> None:
    """Writes to its operands and makes nothing."""


@operation(
    "cross_entropy_(Tensor(a!) logits, Tensor targets, Tensor(b!) losses, float scale) -> ()",
    _fake_loss,
)
def _fused_loss(logits: Tensor, targets: Tensor, losses: Tensor, scale: float) -> None:
    from liger_kernel.ops.cross_entropy import liger_cross_entropy_kernel

    rows, vocab = logits.shape
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        liger_cross_entropy_kernel[(rows,)](
            X_ptr=logits,
            X_stride=logits.stride(0),
            Y_ptr=targets,
            Y_stride=targets.stride(0),
            loss_ptr=losses,
            loss_stride=losses.stride(0),
            n_cols=vocab,
            n_non_ignore=1 / scale,  # the mean over so many tokens is the sum times the scale
            reduction="mean",
            ignore_index=NO_TOKEN,
            BLOCK_SIZE=min(MAX_BLOCK, power_of_two(vocab)),
            num_warps=WARPS,
            **UNUSED_ARGUMENTS,
        )


def _eager_loss(logits: Tensor, targets: Tensor, losses: Tensor, scale: float) -> None:
    """Eager float32 loss, in place."""
    work = logits.float()
    work.sub_(work.amax(-1, keepdim=True))
    hit = targets.unsqueeze(-1)
    target_logit = work.gather(-1, hit)
    total = work.exp_().sum(-1, keepdim=True)
    losses.copy_((total.log() - target_logit).squeeze(-1).mul_(scale))
    work.div_(total).scatter_add_(-1, hit, torch.full_like(target_logit, -1.0)).mul_(scale)
    if work is not logits:
        logits.copy_(work)


def _split_loss(
    split: VocabularySplit, logits: Tensor, targets: Tensor, losses: Tensor, scale: float
) -> None:
    """Eager float32 loss of a part of the vocabulary, in place."""
    work = logits.float()
    highest = work.amax(-1, keepdim=True)
    with mark(COMMUNICATE_TP):
        dist.all_reduce(highest, dist.ReduceOp.MAX, split.group)
    work.sub_(highest)
    local, outside = local_targets(targets, split.start, work.shape[-1])
    target_logit = work.gather(-1, local).masked_fill_(outside, 0)
    total = work.exp_().sum(-1, keepdim=True)
    both = torch.cat((target_logit, total), dim=-1)
    with mark(COMMUNICATE_TP):
        dist.all_reduce(both, group=split.group)
    target_logit, total = both.split(1, dim=-1)  # type: ignore[no-untyped-call]
    losses.copy_((total.log() - target_logit).squeeze(-1).mul_(scale))
    work.div_(total).scatter_add_(-1, local, torch.where(outside, 0.0, -1.0)).mul_(scale)
    if work is not logits:
        logits.copy_(work)


class _Chunked(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        targets: Tensor,
        scale: float,
        is_root: bool,
        loss_in_place: LossInPlace,
        split: VocabularySplit | None,
        chunks: Sequence[int] | None,
    ) -> Tensor:
        whole = x if split is None else split.gather(x)
        flat, targets = whole.reshape(-1, x.shape[-1]), targets.reshape(-1)
        wants_x, wants_weight = ctx.needs_input_grad[:2]
        grad_x = torch.empty_like(flat) if wants_x else None
        grad_weight = torch.empty_like(weight) if wants_weight else None
        losses = torch.empty(flat.shape[0], dtype=torch.float32, device=x.device)
        chunks = chunks or loss_chunks(flat.shape[0], weight.shape[0])
        buffer = torch.empty((chunks[0], weight.shape[0]), dtype=x.dtype, device=x.device)
        first = 0
        for rows in chunks:
            chunk = slice(first, first + rows)
            logits = torch.mm(flat[chunk], weight.t(), out=buffer[:rows])
            loss_in_place(logits, targets[chunk], losses[chunk], scale)
            if grad_x is not None:
                torch.mm(logits, weight, out=grad_x[chunk])
            if grad_weight is not None and first:
                grad_weight.addmm_(logits.t(), flat[chunk])
            elif grad_weight is not None:
                torch.mm(logits.t(), flat[chunk], out=grad_weight)
            first += rows
        if grad_x is not None:
            grad_x = grad_x.view(whole.shape)
            grad_x = grad_x if split is None else split.reduce(grad_x)
        ctx.save_for_backward(grad_x, grad_weight)
        ctx.is_root = is_root
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        made = ctx.saved_tensors
        if not ctx.is_root:
            made = tuple(None if grad is None else grad * grads[0] for grad in made)
        return *made, None, None, None, None, None, None


def _with(loss_in_place: LossInPlace) -> Callable[..., Any]:
    def run(x: Tensor, weight: Tensor, targets: Tensor, scale: float, is_root: bool) -> Any:
        return _Chunked.apply(  # type: ignore[no-untyped-call]
            x, weight, targets, scale, is_root, loss_in_place, None, None
        )

    return run


LINEAR_CROSS_ENTROPY = Family(
    "linear_cross_entropy",
    (
        Variant("liger", _with(_fused_loss), liger_unsupported),
        Variant("eager", _with(_eager_loss), fused=False),
    ),
)
"""Decided by the input, (..., width)."""


def linear_cross_entropy(
    kernels: Dispatcher,
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    scale: float,
    is_root: bool = False,
) -> Tensor:
    """``scale`` times the summed loss of ``x · weightᵀ``, with its gradients.

    Args:
        kernels: of the run.
        x: (..., width), contiguous.
        weight: (vocabulary, width).
        targets: token numbers, as many as ``x`` has rows.
        scale: usually one over the tokens of the global batch.
        is_root: the backward pass starts at this loss: its gradient is one, so nothing is
            multiplied by it.
    """
    out: Tensor = kernels.pick(LINEAR_CROSS_ENTROPY, x)(x, weight, targets, scale, is_root)
    return out


def split_linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    scale: float,
    split: VocabularySplit,
    chunks: Sequence[int],
    is_root: bool = False,
) -> Tensor:
    """:func:`linear_cross_entropy` over a vocabulary that ranks split.

    Args:
        x: (seq, batch, width), this rank's part of it.
        weight: (this rank's part of the vocabulary, width).
        targets: token numbers of all rows, also those that other ranks hold.
        scale: usually one over the tokens of the global batch.
        split: the ranks and this one's part.
        chunks: rows of each, on all ranks alike.
        is_root: the backward pass starts at this loss.
    """
    out: Tensor = _Chunked.apply(  # type: ignore[no-untyped-call]
        x, weight, targets, scale, is_root, partial(_split_loss, split), split, chunks
    )
    return out


def linear_cross_entropy_reference(
    x: Tensor, weight: Tensor, targets: Tensor, scale: float
) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    logits = x.double().reshape(-1, x.shape[-1]) @ weight.double().t()
    chosen = logits.gather(-1, targets.reshape(-1, 1)).squeeze(-1)
    return (logits.logsumexp(-1) - chosen).sum() * scale


__all__ = [
    "LINEAR_CROSS_ENTROPY",
    "VocabularySplit",
    "linear_cross_entropy",
    "linear_cross_entropy_reference",
    "split_linear_cross_entropy",
]
