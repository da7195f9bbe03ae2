"""Kernels that no timed row runs, against float64 definitions.

A check takes the device and says what was picked and how far off it was; it raises where that is
too far. Gradients are compared, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from gpu.smoke_checks import Check, relative, within
from torch import Tensor

from shardwright.kernels.attention.attention import attention_reference
from shardwright.kernels.attention.block_masked import (
    block_masked_attention,
    block_masked_attention_reference,
)
from shardwright.kernels.attention.flash import (
    flash_attention_backward_block,
    flash_attention_with_lse,
)
from shardwright.kernels.attention.masks import DocumentMask, visible
from shardwright.kernels.attention.ring_merge import merge_attention
from shardwright.kernels.attention.varlen import varlen_attention, varlen_attention_reference
from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.moe.expert_order import ExpertOrder, expert_order
from shardwright.kernels.moe.grouped_matmul import grouped_matmul, grouped_matmul_reference
from shardwright.kernels.moe.token_permutation import (
    permute,
    permute_reference,
    unpermute,
    unpermute_reference,
)
from shardwright.kernels.quantization.block_format import BlockFormat
from shardwright.kernels.quantization.block_quantize import quantize
from shardwright.kernels.rounding import Philox
from shardwright.kernels.token_ranges.copy import (
    gather_reference,
    gather_token_ranges,
    scatter_reference,
    scatter_token_ranges,
)
from shardwright.kernels.token_ranges.ranges import token_ranges

SEQ, HEADS, KV_HEADS, WIDTH = 256, 4, 2, 64
Function = Callable[..., Tensor]


def _dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _normal(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device, dtype=_dtype(device))


def _heads(device: torch.device, *shape: int) -> list[Tensor]:
    return [_normal(device, *shape, heads, WIDTH) for heads in (HEADS, KV_HEADS, KV_HEADS)]


def _differentiated(function: Function, operands: Sequence[Tensor]) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in operands]
    out = function(*leaves)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(out.shape, generator=generator).to(leaves[0].dtype).to(out)
    return [out.detach(), *torch.autograd.grad(out, leaves, weight)]


def _compared(
    kernels: Dispatcher, ours: Function, reference: Function, operands: Sequence[Tensor]
) -> str:
    actual = _differentiated(ours, operands)
    return _said(kernels, actual, _differentiated(reference, operands), operands[0].dtype)


def _said(
    kernels: Dispatcher, actual: Sequence[Tensor], expected: Sequence[Tensor], dtype: torch.dtype
) -> str:
    errors = [relative(a, b) for a, b in zip(actual, expected, strict=True)]
    for error in errors:
        within(error, dtype)
    return f"{_picked(kernels)}, off by {max(errors):.1e}"


def _picked(kernels: Dispatcher) -> str:
    return "picked " + ", ".join(dict.fromkeys(c.variant.name for c in kernels.choices()))


def _ring(device: torch.device) -> str:
    """Two ranks of a ring: each query half merges two blocks."""
    kernels = Dispatcher()
    operands, grad = _heads(device, SEQ, 1), _normal(device, SEQ, 1, HEADS, WIDTH)
    query, key, value, weight = (x.chunk(2) for x in (*operands, grad))
    outs, grads = [], [torch.zeros_like(x, dtype=torch.float32).chunk(2) for x in operands]
    for i, q in enumerate(query):
        parts = [
            flash_attention_with_lse(kernels, q, key[j], value[j], i == j) for j in range(i + 1)
        ]
        out, lse = parts[0][0].float(), parts[0][1]
        for part in parts[1:]:
            out, lse = merge_attention(out, lse, *part)
        outs.append(out)
        for j in range(i + 1):
            block = (weight[i], q, key[j], value[j], out, lse)
            new = flash_attention_backward_block(kernels, *block, causal=i == j)
            for total, position, more in zip(grads, (i, j, j), new, strict=True):
                total[position].add_(more)
    leaves = [x.double().requires_grad_() for x in operands]
    whole = attention_reference(*leaves)
    expected = [whole.detach(), *torch.autograd.grad(whole, leaves, grad.double().flatten(2))]
    actual = [torch.cat(outs).flatten(2), *(torch.cat(x) for x in grads)]
    return _said(kernels, actual, expected, operands[0].dtype)


def _packed(device: torch.device) -> str:
    """Sequences of three lengths, one of them empty."""
    kernels, ends = Dispatcher(), [0, 64, 64, 200, SEQ]
    bounds = torch.tensor(ends, dtype=torch.int32, device=device)

    def ours(*heads: Tensor) -> Tensor:
        return varlen_attention(kernels, *heads, bounds, 136)

    def reference(*heads: Tensor) -> Tensor:
        return varlen_attention_reference(*heads, bounds)

    return _compared(kernels, ours, reference, _heads(device, SEQ))


def _masked(device: torch.device) -> str:
    """Two samples of documents of unequal lengths, under our own mask."""
    kernels, mask = Dispatcher(), DocumentMask(((100, 156), (30, 200, 26)))
    table = visible(mask, 2, SEQ, device)

    def ours(*heads: Tensor) -> Tensor:
        return block_masked_attention(kernels, *heads, mask)

    def reference(*heads: Tensor) -> Tensor:
        return block_masked_attention_reference(*heads, table)

    return _compared(kernels, ours, reference, _heads(device, SEQ, 2))


def _rounded_by_chance(device: torch.device) -> str:
    """Stochastic rounding: equal bits from both implementations and equal randomness."""
    kernels, portable, philox = Dispatcher(), Dispatcher("portable"), Philox(2**40 + 7, 2**33 + 5)
    x = _normal(device, 48, 1000)
    forms = [BlockFormat(bits=b, block=128, hadamard=h) for b in (8, 4) for h in (False, True)]
    for form in forms:
        pairs = zip(*(quantize(k, x, form, philox) for k in (kernels, portable)), strict=True)
        for name, (actual, expected) in zip(("levels", "scales"), pairs, strict=True):
            if different := int((actual != expected).sum()):
                kind = f"{form.bits} bits{', transformed' if form.hadamard else ''}"
                raise ValueError(f"{kind}: {different} of {actual.numel()} {name} differ")
    return f"{_picked(kernels)}, {len(forms)} formats alike bit by bit"


def _grouped(device: torch.device) -> str:
    """Unequal groups, one of them empty."""
    kernels = Dispatcher()
    ends = torch.tensor([16, 16, 40, 64], device=device, dtype=torch.int32)
    operands = [_normal(device, 64, 32), _normal(device, 4, 32, 48)]

    def ours(x: Tensor, weight: Tensor) -> Tensor:
        return grouped_matmul(kernels, x, weight, ends)

    def reference(x: Tensor, weight: Tensor) -> Tensor:
        return grouped_matmul_reference(x, weight, ends)

    return _compared(kernels, ours, reference, operands)


def _order(device: torch.device) -> ExpertOrder:
    """100 tokens to 2 of 4 experts, 40 rows each, some dropped."""
    first = torch.arange(100, device=device) ** 2 % 4
    return expert_order(torch.stack((first, (first + 1) % 4), dim=1), 4, capacity=40)


def _permuted(device: torch.device) -> str:
    kernels, order = Dispatcher(), _order(device)
    ours, reference = (
        partial(permute, kernels, order=order),
        partial(permute_reference, order=order),
    )
    return _compared(kernels, ours, reference, [_normal(device, 100, 96)])


def _unpermuted(device: torch.device) -> str:
    kernels, order = Dispatcher(), _order(device)

    def ours(rows: Tensor, weights: Tensor) -> Tensor:
        return unpermute(kernels, rows, order, weights)

    def reference(rows: Tensor, weights: Tensor) -> Tensor:
        return unpermute_reference(rows, order, weights)

    return _compared(kernels, ours, reference, [_normal(device, 160, 96), _normal(device, 100, 2)])


def _gathered(device: torch.device) -> str:
    kernels, pieces = Dispatcher(), torch.tensor([[60, 40], [0, 0], [10, 70], [3, 1]])
    ranges = token_ranges(*pieces.unbind(1), 128, device)
    ours: Any = partial(gather_token_ranges, kernels, ranges=ranges)
    reference = partial(gather_reference, ranges=ranges)
    return _compared(kernels, ours, reference, [_normal(device, 128, 96)])


def _scattered(device: torch.device) -> str:
    kernels, pieces = Dispatcher(), torch.tensor([[60, 40], [0, 0], [10, 50], [3, 1]])
    ranges = token_ranges(*pieces.unbind(1), 128, device)
    ours: Any = partial(scatter_token_ranges, kernels, ranges=ranges)
    reference = partial(scatter_reference, ranges=ranges)
    return _compared(kernels, ours, reference, [_normal(device, ranges.total, 96)])


KERNEL_CHECKS: dict[str, Check] = {
    "a ring of two blocks": _ring,
    "varlen_attention": _packed,
    "quantize, rounded by chance": _rounded_by_chance,
    "grouped_matmul": _grouped,
    "permute": _permuted,
    "unpermute": _unpermuted,
    "gather_token_ranges": _gathered,
    "scatter_token_ranges": _scattered,
    "block_masked_attention": _masked,  # last: it is compiled, which takes long
}
