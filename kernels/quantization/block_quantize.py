"""Block quantisation: levels of 4 or 8 bits with a scale a block, in place of 16 or 32 bits.

What SDP4Bit (2024, sections 3.1 to 3.3) and ZeRO++ (2023) send between ranks. One kernel encodes
(transform, highest magnitude, rounding, packing) and one decodes (unpacking, sum over peers,
transform back, addition); no kept library has 4 bits, stochastic rounding and the transform
together. Numbers are taken to float32 first, also those of 16 bits: the transform adds 32 of them.
Rounded to the nearest, a number is off by at most half its block's scale, by chance by less than
one (in the transformed domain, where there is one).

Nothing here is differentiable: what is sent are gradients and differences of weights, which nobody
differentiates again, so no result carries a gradient, whatever went in. Tensors that are not
contiguous are copied first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...spec.errors import InputError
from ..dispatch import Dispatcher, Family, Variant
from ..fused import triton_unsupported
from ..rounding import Philox
from . import block_fused, block_portable
from .block_format import BlockFormat, Quantized, check_fits

BLOCK_QUANTIZE = Family(
    "block_quantise",
    (
        Variant("triton", block_fused.encode, triton_unsupported),
        Variant("eager", block_portable.encode, fused=False),
    ),
)
"""Decided by what is quantised, (…, width)."""

BLOCK_DEQUANTIZE = Family(
    "block_dequantise",
    (
        Variant("triton", block_fused.decode_sum, triton_unsupported),
        Variant("eager", block_portable.decode_sum, fused=False),
    ),
)
"""Decided by the scales, (peers, …, blocks) float32."""

BLOCK_DEQUANTIZE_ADD = Family(
    "block_dequantise_add",
    (
        Variant("triton", block_fused.add_decoded, triton_unsupported),
        Variant("eager", block_portable.add_decoded, fused=False),
    ),
)
"""Decided by the weights, (…, width)."""


def quantize(
    kernels: Dispatcher, x: Tensor, form: BlockFormat, philox: Philox | None = None
) -> Quantized:
    """Levels and scales of ``x``.

    Args:
        kernels: of the run.
        x: (…, width) floats; blocks run along the last axis. Gradients that are reduced and
            scattered are (ranks, shard), so that every shard has blocks of its own.
        form: bits, block, transform.
        philox: rounds up or down at random, right on average: the stream of bits and the first
            of the ``form.counters(x)`` counters that are used. None: to the nearest, the even
            level on a tie. Every implementation draws the same bits.

    Raises:
        InputError: ``x`` has no axis; a seed or an offset out of range.
    """
    if not x.ndim:
        raise InputError("x", "a number", "at least one axis", "x.view(1)")
    with torch.no_grad():
        run = kernels.pick(BLOCK_QUANTIZE, x)
        out: Quantized = run(x.detach(), form, philox.checked() if philox else None)
    return out


def dequantize(
    kernels: Dispatcher,
    quantised: Quantized,
    form: BlockFormat,
    width: int,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """(…, width) numbers from their levels and scales.

    Args:
        kernels: of the run.
        quantised: (…, bytes) and (…, blocks).
        form: that they were written in.
        width: elements of a row, without the filling of its last block.
        dtype: of the result; computed in float32.

    Raises:
        InputError: parts that do not belong to such numbers.
    """
    peers = Quantized(*(part[None] for part in quantised))
    return dequantize_sum(kernels, peers, form, width, dtype)


def dequantize_sum(
    kernels: Dispatcher,
    peers: Quantized,
    form: BlockFormat,
    width: int,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The sum over the first axis of what came from each peer, in the order of the peers.

    The reduction of a quantised reduce-scatter. Between its two hops the sum may stay in the
    transformed domain: decode and encode with ``hadamard=False`` there.

    Args:
        kernels: of the run.
        peers: (peers, …, bytes) and (peers, …, blocks).
        form: that they were written in.
        width: elements of a row of each.
        dtype: of the result; summed in float32.

    Raises:
        InputError: parts that do not belong to such numbers, or no peers.
    """
    if peers.scales.ndim < 2 or not peers.scales.shape[0]:
        given = f"scales of shape {tuple(peers.scales.shape)}"
        raise InputError("peers", given, "(peers, …, blocks) with at least one peer")
    check_fits(peers, form, (*peers.scales.shape[:-1], width))
    with torch.no_grad():
        out: Tensor = kernels.pick(BLOCK_DEQUANTIZE, peers.scales)(peers, width, form, dtype)
    return out


def dequantize_add_(
    kernels: Dispatcher, weight: Tensor, difference: Quantized, form: BlockFormat
) -> Tensor:
    """Add a difference to weights in place, in float32 and rounded once; gives the weights back.

    Args:
        kernels: of the run.
        weight: (…, width) float32 or 16-bit floats.
        difference: levels and scales of as many numbers.
        form: that they were written in.

    Raises:
        InputError: a difference of another shape.
    """
    check_fits(difference, form, tuple(weight.shape))
    with torch.no_grad():
        kernels.pick(BLOCK_DEQUANTIZE_ADD, weight)(weight.detach(), difference, form)
    return weight


__all__ = [
    "BLOCK_DEQUANTIZE",
    "BLOCK_DEQUANTIZE_ADD",
    "BLOCK_QUANTIZE",
    "dequantize",
    "dequantize_add_",
    "dequantize_sum",
    "quantize",
]
