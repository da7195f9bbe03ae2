"""Block quantisation: levels of 4 or 8 bits with a scale a block, in place of 16 or 32 bits.

What SDP4Bit (2024, sections 3.1 to 3.3) and ZeRO++ (2023) send between ranks. One kernel encodes
(transform, highest magnitude, rounding, packing) and one decodes (unpacking, sum over peers,
transform back, addition); no kept library has 4 bits, stochastic rounding and the transform
together. Numbers are taken to float32 first, also those of 16 bits: the transform adds 32 of
them. Rounded to the nearest, a number is off by at most half its block's scale, by chance by
less than one (in the transformed domain, where there is one).

Nothing here is differentiable: what is sent are gradients and differences of weights, which
nobody differentiates again, so no result carries a gradient, whatever went in. Tensors that are
not contiguous are copied first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...spec.errors import InputError
from ..dispatch import Dispatcher, Family, Variant
from ..fused import triton_refuses
from ..rounding import Philox
from . import block_fused, block_portable
from .block_format import BlockFormat, Quantised, check_fits

BLOCK_QUANTISE = Family(
    "block_quantise",
    (
        Variant("triton", block_fused.encode, triton_refuses),
        Variant("eager", block_portable.encode, fused=False),
    ),
)
"""Decided by what is quantised, (…, width)."""

BLOCK_DEQUANTISE = Family(
    "block_dequantise",
    (
        Variant("triton", block_fused.decode_sum, triton_refuses),
        Variant("eager", block_portable.decode_sum, fused=False),
    ),
)
"""Decided by the scales, (peers, …, blocks) float32."""

BLOCK_DEQUANTISE_ADD = Family(
    "block_dequantise_add",
    (
        Variant("triton", block_fused.add_decoded, triton_refuses),
        Variant("eager", block_portable.add_decoded, fused=False),
    ),
)
"""Decided by the weights, (…, width)."""


def quantise(
    kernels: Dispatcher, x: Tensor, form: BlockFormat, chance: Philox | None = None
) -> Quantised:
    """Levels and scales of ``x``.

    Args:
        kernels: of the run.
        x: (…, width) floats; blocks run along the last axis. Gradients that are reduced and
            scattered are (ranks, shard), so that every shard has blocks of its own.
        form: bits, block, transform.
        chance: rounds up or down at random, right on average: the stream of bits and the first
            of the ``form.counters(x)`` counters that are used. None: to the nearest, the even
            level on a tie. Every implementation draws the same bits.

    Raises:
        InputError: ``x`` has no axis; a seed or an offset out of range.
    """
    if not x.ndim:
        raise InputError("x", "a number", "at least one axis", "x.view(1)")
    with torch.no_grad():
        run = kernels.pick(BLOCK_QUANTISE, x)
        out: Quantised = run(x.detach(), form, chance.checked() if chance else None)
    return out


def dequantise(
    kernels: Dispatcher,
    quantised: Quantised,
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
    peers = Quantised(*(part[None] for part in quantised))
    return dequantise_sum(kernels, peers, form, width, dtype)


def dequantise_sum(
    kernels: Dispatcher,
    peers: Quantised,
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
        out: Tensor = kernels.pick(BLOCK_DEQUANTISE, peers.scales)(peers, width, form, dtype)
    return out


def dequantise_add_(
    kernels: Dispatcher, weight: Tensor, difference: Quantised, form: BlockFormat
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
        kernels.pick(BLOCK_DEQUANTISE_ADD, weight)(weight.detach(), difference, form)
    return weight


__all__ = [
    "BLOCK_DEQUANTISE",
    "BLOCK_DEQUANTISE_ADD",
    "BLOCK_QUANTISE",
    "dequantise",
    "dequantise_add_",
    "dequantise_sum",
    "quantise",
]
