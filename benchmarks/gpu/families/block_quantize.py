"""Block quantization to 8 and 4 bits: there, back, sums over peers, additions to weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.quantization.block_format import BlockFormat, Quantized
from shardwright.kernels.quantization.block_quantize import (
    dequantize,
    dequantize_add_,
    dequantize_sum,
    quantize,
)
from shardwright.kernels.rounding import Philox

BLOCK = 128
PEERS = 8
"""Ranks whose parts a reduction adds up."""
SEED = 7
FORMATS = (
    BlockFormat(bits=8, block=BLOCK),
    BlockFormat(bits=8, block=BLOCK, hadamard=True),
    BlockFormat(bits=4, block=BLOCK),
    BlockFormat(bits=4, block=BLOCK, hadamard=True),
)
PORTABLE = Dispatcher("portable")


def _there(
    form: BlockFormat, philox: Philox | None, kernels: Dispatcher, x: Tensor
) -> Quantized:
    return quantize(kernels, x, form, philox)


def _back(
    form: BlockFormat, width: int, kernels: Dispatcher, packed: Tensor, scales: Tensor
) -> Tensor:
    return dequantize(kernels, Quantized(packed, scales), form, width, torch.bfloat16)


def _summed(
    form: BlockFormat, width: int, kernels: Dispatcher, packed: Tensor, scales: Tensor
) -> Tensor:
    return dequantize_sum(kernels, Quantized(packed, scales), form, width, torch.bfloat16)


def _sum_of_each(form: BlockFormat, width: int, packed: Tensor, scales: Tensor) -> Tensor:
    parts = zip(packed, scales, strict=True)
    return torch.stack([dequantize(PORTABLE, Quantized(*p), form, width) for p in parts]).sum(0)


def _added(
    form: BlockFormat, kernels: Dispatcher, weight: Tensor, packed: Tensor, scales: Tensor
) -> Tensor:
    return dequantize_add_(kernels, weight, Quantized(packed, scales), form)


def _plain_sum(form: BlockFormat, weight: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    return weight + dequantize(PORTABLE, Quantized(packed, scales), form, weight.shape[-1])


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Each reads its inputs once and writes its outputs once, scales included."""
    yield from _both_ways(sizes)
    yield from _sums(sizes)
    yield from _additions(sizes)


def _kind(form: BlockFormat) -> str:
    return f"{form.bits} bits" + (", transformed" if form.hadamard else "")


def _message_bytes(form: BlockFormat, rows: int, width: int) -> int:
    return rows * (form.packed_bytes(width) + form.blocks(width) * 4)


def _both_ways(sizes: Sizes) -> Iterator[Entry]:
    """Quantizing reads 16-bit numbers, writes levels and scales; backward reversed."""
    rows, width = sizes.activations[-1]
    for form in FORMATS:
        moved = rows * width * sizes.dtype.itemsize + _message_bytes(form, rows, width)

        def plain(make: Make) -> tuple[Tensor]:
            return (make.normal(rows, width),)

        def packed(make: Make, form: BlockFormat = form) -> tuple[Tensor, Tensor]:
            blocks = quantize(PORTABLE, make.normal(rows, width), form)
            return blocks.packed, blocks.scales

        there, back = partial(_there, form, None), partial(_back, form, width)
        case = f"{rows} x {width}, {_kind(form)}"
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
        by_chance = partial(_there, form, Philox(SEED))
        yield Entry(
            family="block_quantize",
            case=f"{case}, rounded by chance",
            mode="forward",
            make=plain,
            ours=by_chance,
            eager=partial(by_chance, PORTABLE),
            work=Work(moved),
            error_limit=None,  # one level off a number moves the norm; tests hold the bits equal
        )


def _sums(sizes: Sizes) -> Iterator[Entry]:
    """A reduction's sum reads every peer's levels and scales, writes one part."""
    rows, width = sizes.activations[-1]
    rows = 2 * rows // PEERS
    for form in FORMATS:

        def peers(make: Make, form: BlockFormat = form) -> tuple[Tensor, Tensor]:
            blocks = quantize(PORTABLE, make.normal(PEERS, rows, width), form)
            return blocks.packed, blocks.scales

        summed = partial(_summed, form, width)
        yield Entry(
            family="block_dequantize_sum",
            case=f"{rows} x {width} of {PEERS} peers, {_kind(form)}",
            mode="forward",
            make=peers,
            ours=summed,
            eager=partial(summed, PORTABLE),
            reference=partial(_sum_of_each, form, width),
            work=Work(
                PEERS * _message_bytes(form, rows, width) + rows * width * sizes.dtype.itemsize
            ),
        )


def _additions(sizes: Sizes) -> Iterator[Entry]:
    """An addition in place reads differences and weights, and writes the weights."""
    rows, width = sizes.activations[-1]
    for form in FORMATS:
        if form.hadamard:  # weights are sent without the transform
            continue

        def operands(make: Make, form: BlockFormat = form) -> tuple[Tensor, Tensor, Tensor]:
            blocks = quantize(PORTABLE, make.normal(rows, width), form)
            return make.normal(rows, width), blocks.packed, blocks.scales

        added = partial(_added, form)
        yield Entry(
            family="block_dequantize_add",
            case=f"{rows} x {width}, {_kind(form)}",
            mode="forward",
            make=operands,
            ours=added,
            eager=partial(added, PORTABLE),
            reference=partial(_plain_sum, form),
            work=Work(
                _message_bytes(form, rows, width) + 2 * rows * width * sizes.dtype.itemsize
            ),
        )
