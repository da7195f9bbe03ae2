"""Cases of blocks in 4 and 8 bits: what ranks quantize to send, and dequantize.

Ranks that send fewer bits run these beside every exchange. On a core each is a chain of operations
that takes many times what its bytes would.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...kernels.dispatch import Dispatcher
from ...kernels.quantization import block_quantize as blocks
from ...kernels.quantization.block_format import BlockFormat, Quantized
from ...kernels.quantization.wire_format import message_bytes
from ...kernels.rounding import Philox
from ...spec.report.quantize_kernels import kernel_op
from ...spec.report.work_items import streamed
from .case import Case, KernelRun, TensorSpec

PEERS = 2
MOST_ELEMENTS = 1 << 18
"""More take a core seconds, at the same rate: it draws random numbers one operation at a time."""
WIRE = "int8"
WEIGHTS = (BlockFormat(bits=8, block=2048), BlockFormat(bits=4, block=2048))
GRADIENTS = tuple(
    BlockFormat(bits=bits, block=block, hadamard=hadamard)
    for bits, block in ((8, 512), (4, 128))
    for hadamard in (False, True)
)


def wire(elements: int, tensor_spec: TensorSpec) -> Iterator[Case]:
    """Quantizing and dequantizing ``elements`` in the usual blocks.

    Quantizing, whose price is of any source, is timed from fp32.
    """
    elements = min(elements, MOST_ELEMENTS)
    quantizes = tensor_spec.dtype == "fp32"
    for form in WEIGHTS:
        if quantizes:
            yield _encode(elements, tensor_spec, form, stochastic=False)
        yield _decode(elements, tensor_spec, form)
    yield _add(elements, tensor_spec, WEIGHTS[1])
    for form in GRADIENTS:
        if quantizes:
            yield _encode(elements, tensor_spec, form, stochastic=True)
        yield _sum(elements, tensor_spec, form)


def _encode(elements: int, spec: TensorSpec, form: BlockFormat, stochastic: bool) -> Case:
    op = kernel_op("quantise", form.bits, stochastic, form.hadamard)
    traffic = elements * spec.itemsize + message_bytes(form, elements)

    def prepare() -> KernelRun:
        chance = Philox(0, 0) if stochastic else None
        return partial(blocks.quantize, Dispatcher(), spec.random(1, elements), form, chance)

    return Case(streamed(op, elements, traffic, WIRE), prepare)


def _decode(elements: int, spec: TensorSpec, form: BlockFormat) -> Case:
    traffic = message_bytes(form, elements) + elements * spec.itemsize

    def prepare() -> KernelRun:
        sent = _sent(elements, spec, form, 1)
        return partial(blocks.dequantize, Dispatcher(), sent, form, elements, spec.torch_dtype)

    op = kernel_op("dequantise", form.bits)
    return Case(streamed(op, elements, traffic, spec.dtype), prepare)


def _sum(elements: int, spec: TensorSpec, form: BlockFormat) -> Case:
    """Sums of what peers sent; ``elements`` of all of them."""
    kept = elements // PEERS
    traffic = PEERS * message_bytes(form, kept) + kept * spec.itemsize

    def prepare() -> KernelRun:
        sent = _sent(kept, spec, form, PEERS)
        return partial(blocks.dequantize_sum, Dispatcher(), sent, form, kept, spec.torch_dtype)

    op = kernel_op("dequantise_sum", form.bits, hadamard=form.hadamard)
    return Case(streamed(op, kept, traffic, spec.dtype), prepare)


def _add(elements: int, spec: TensorSpec, form: BlockFormat) -> Case:
    traffic = message_bytes(form, elements) + 2 * elements * spec.itemsize

    def prepare() -> KernelRun:
        weights, sent = spec.random(1, elements), _sent(elements, spec, form, 1)
        return partial(blocks.dequantize_add_, Dispatcher(), weights, sent, form)

    op = kernel_op("dequantise_add", form.bits)
    return Case(streamed(op, elements, traffic, spec.dtype), prepare)


def _sent(elements: int, spec: TensorSpec, form: BlockFormat, rows: int) -> Quantized:
    return blocks.quantize(Dispatcher(), spec.random(rows, elements), form)


__all__ = ["wire"]
