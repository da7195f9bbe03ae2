"""Block quantization to 4- or 8-bit levels with one scale per block.

SDP4Bit (2024, sections 3.1 to 3.3) and ZeRO++ (2023) send these between ranks. One kernel encodes
(transform, highest magnitude, rounding, packing) and one decodes (unpacking, sum over peers,
inverse transform, addition); no library combines 4 bits, stochastic rounding and the transform.
Numbers, 16-bit ones too, are taken to float32 first: the transform adds 32 of them. Rounding to
nearest is off by at most half the block's scale, stochastic rounding by less than one (in the
transformed domain, if any).

Nothing is differentiable: gradients and weight differences are sent, which nobody differentiates
again, so no result carries a gradient. Strided tensors are copied first.
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
    """Quantize ``x`` to levels and scales.

    Args:
        kernels: of the run.
        x: (…, width) floats; blocks run along the last axis. Gradients to reduce-scatter are
            (ranks, shard), so that every shard has blocks of its own.
        form: bits, block, transform.
        philox: stochastic, unbiased rounding: the random stream and the first of the
            ``form.counters(x)`` counters it uses, the same bits in every implementation. None: to
            nearest, ties to even.

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
    """Dequantize to (…, width) numbers.

    Args:
        kernels: of the run.
        quantised: (…, bytes) and (…, blocks).
        form: that they were written in.
        width: elements of a row, without the last block's filling.
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
    """Dequantized sum over peers (first axis), in peer order.

    The reduction of a quantized reduce-scatter. Between its two hops the sum may stay in the
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
        description = f"scales of shape {tuple(peers.scales.shape)}"
        raise InputError("peers", description, "(peers, …, blocks) with at least one peer")
    check_fits(peers, form, (*peers.scales.shape[:-1], width))
    with torch.no_grad():
        out: Tensor = kernels.pick(BLOCK_DEQUANTIZE, peers.scales)(peers, width, form, dtype)
    return out


def dequantize_add_(
    kernels: Dispatcher, weight: Tensor, difference: Quantized, form: BlockFormat
) -> Tensor:
    """Add a difference to weights in place and return the weights.

    Computed in float32 and rounded once.

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
