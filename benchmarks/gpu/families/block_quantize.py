"""Block quantization to 8 and 4 bits, with and without the transform."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.quantization.block_format import BlockFormat, Quantized
from shardwright.kernels.quantization.block_quantize import dequantize, quantize

BLOCK = 128
FORMATS = (
    BlockFormat(bits=8, block=BLOCK),
    BlockFormat(bits=8, block=BLOCK, hadamard=True),
    BlockFormat(bits=4, block=BLOCK),
    BlockFormat(bits=4, block=BLOCK, hadamard=True),
)
PORTABLE = Dispatcher("portable")


def _there(form: BlockFormat, kernels: Dispatcher, x: Tensor) -> Quantized:
    return quantize(kernels, x, form)


def _back(
    form: BlockFormat, width: int, kernels: Dispatcher, packed: Tensor, scales: Tensor
) -> Tensor:
    return dequantize(kernels, Quantized(packed, scales), form, width, torch.bfloat16)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Quantizing reads 16-bit numbers, writes levels and scales; backward reversed."""
    rows, width = sizes.activations[-1]
    for form in FORMATS:
        moved = rows * (width * (sizes.dtype.itemsize) + form.packed_bytes(width))
        moved += rows * form.blocks(width) * 4
        kind = f"{form.bits} bits" + (", transformed" if form.hadamard else "")

        def plain(make: Make) -> tuple[Tensor]:
            return (make.normal(rows, width),)

        def packed(make: Make, form: BlockFormat = form) -> tuple[Tensor, Tensor]:
            blocks = quantize(PORTABLE, make.normal(rows, width), form)
            return blocks.packed, blocks.scales

        there, back = partial(_there, form), partial(_back, form, width)
        case = f"{rows} x {width}, {kind}"
        yield Entry(
            family="block_quantize",
            case=case,
            mode="forward",
            make=plain,
            ours=there,
            eager=partial(there, PORTABLE),
            work=Work(moved),
            error_limit=None,  # levels; their errors have tests of their own
        )
        yield Entry(
            family="block_dequantize",
            case=case,
            mode="forward",
            make=packed,
            ours=back,
            eager=partial(back, PORTABLE),
            work=Work(moved),
        )
