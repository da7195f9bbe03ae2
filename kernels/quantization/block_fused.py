"""Block quantization as operations of the library, each one fused kernel.

The kernel modules import Triton, so they are imported only on use.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ..fused import operation
from ..rounding import Philox
from .block_format import BlockFormat, Quantized


def _form(bits: int, block: int, hadamard: bool) -> BlockFormat:
    return BlockFormat(bits=bits, block=block, hadamard=hadamard)


def _fake_encode(
    x: Tensor, bits: int, block: int, hadamard: bool, seed: int | None, offset: int
) -> tuple[Tensor, Tensor]:
    form, rows, width = _form(bits, block, hadamard), x.shape[:-1], x.shape[-1]
    packed = x.new_empty((*rows, form.packed_bytes(width)), dtype=form.dtype)
    return packed, x.new_empty((*rows, form.blocks(width)), dtype=torch.float32)


@operation(
    "block_quantise(Tensor x, int bits, int block, bool hadamard, int? seed, int offset)"
    " -> (Tensor, Tensor)",
    _fake_encode,
)
def _block_quantise(
    x: Tensor, bits: int, block: int, hadamard: bool, seed: int | None, offset: int
) -> tuple[Tensor, Tensor]:
    from . import block_quantize_triton as kernel

    packed, scales = _fake_encode(x, bits, block, hadamard, seed, offset)
    philox = None if seed is None else Philox(seed, offset)
    kernel.encode(x.contiguous(), packed, scales, _form(bits, block, hadamard), philox)
    return packed, scales


def _fake_decode(
    packed: Tensor, scales: Tensor, width: int, bits: int, block: int, hadamard: bool,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    return scales.new_empty((*scales.shape[1:-1], width), dtype=dtype)


@operation(
    "block_dequantise_sum(Tensor packed, Tensor scales, int width, int bits, int block,"
    " bool hadamard, ScalarType dtype) -> Tensor",
    _fake_decode,
)
def _block_dequantise_sum(
    packed: Tensor, scales: Tensor, width: int, bits: int, block: int, hadamard: bool,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    from . import block_quantize_triton as kernel

    out = _fake_decode(packed, scales, width, bits, block, hadamard, dtype)
    peers = Quantized(packed.contiguous(), scales.contiguous())
    kernel.decode(peers, out, _form(bits, block, hadamard), packed.shape[0], add=False)
    return out


def _fake_add(
    weight: Tensor, packed: Tensor, scales: Tensor, bits: int, block: int, hadamard: bool
) -> None:
    return None


@operation(
    "block_dequantise_add_(Tensor(a!) weight, Tensor packed, Tensor scales, int bits, int block,"
    " bool hadamard) -> ()",
    _fake_add,
)
def _block_dequantise_add(
    weight: Tensor, packed: Tensor, scales: Tensor, bits: int, block: int, hadamard: bool
) -> None:
    from . import block_quantize_triton as kernel

    whole = weight.contiguous()
    difference = Quantized(packed.contiguous(), scales.contiguous())
    kernel.decode(difference, whole, _form(bits, block, hadamard), peers=1, add=True)
    if whole is not weight:
        weight.copy_(whole)


def encode(x: Tensor, form: BlockFormat, philox: Philox | None) -> Quantized:
    """As :func:`block_portable.encode`, bit by bit."""
    seed, offset = philox or (None, 0)
    return Quantized(*_block_quantise(x, form.bits, form.block, form.hadamard, seed, offset))


def decode_sum(peers: Quantized, width: int, form: BlockFormat, dtype: torch.dtype) -> Tensor:
    """As :func:`block_portable.decode_sum`, bit by bit."""
    out: Tensor = _block_dequantise_sum(*peers, width, form.bits, form.block, form.hadamard, dtype)
    return out


def add_decoded(weight: Tensor, quantised: Quantized, form: BlockFormat) -> None:
    """As :func:`block_portable.add_decoded`, bit by bit."""
    _block_dequantise_add(weight, *quantised, form.bits, form.block, form.hadamard)
    if not weight.is_inference():
        increment_version(weight)


__all__ = ["add_decoded", "decode_sum", "encode"]
