"""Low-precision operands of matrix products: quantized copies and their lifetime.

As in Transformer Engine: an input is quantized once, for the forward product and transposed for the
weight gradient; only the latter is saved, at one byte (nvfp4: half) per element. Output gradients
are quantized both ways too. Tensor-parallel ranks gather quantized copies. Weights are quantized
once per step, or per use, as the stack does.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.workload.base_formats import QuantizedBase, packed_bytes, scale_bytes
from ...spec.workload.number_formats import MatmulFormat, Scaling, weight_bytes
from ..symbolic.tape import SymbolicTensor, Tape

UNQUANTIZED = frozenset({"router", "shared_expert_gate", "projection"})
"""Linear layers whose products keep the parameters' format (DeepSeek-V3, section 3.3.1)."""
MEASURED_FIRST = ("fp8_tensor", "nvfp4")
"""Formats with one scale for the whole tensor, which a pass over it finds first."""


class Precision(NamedTuple):
    """Low-precision products of linear layers: format, scaling, cached weights."""

    format: MatmulFormat
    scaling: Scaling
    cached_weights: bool


def operand(t: Tape, precision: Precision | None, x: SymbolicTensor) -> SymbolicTensor:
    """A product's saved operand: a quantized copy, or ``x`` itself."""
    if precision is None:
        return x
    if precision.format in MEASURED_FIRST and precision.scaling == "current":
        t.kernel("amax", (x,), t.new((1,), "fp32"))
    forward, saved = (t.new(x.shape, precision.format) for _ in range(2))
    return t.kernel("quantize", (x, forward), saved)


def quantized_weight(
    t: Tape, precision: Precision | None, elements: int, dtype: str
) -> SymbolicTensor | None:
    """A weight's quantized copy if the stack makes one per use."""
    if precision is None or precision.cached_weights:
        return None
    target_format = precision.format
    weight = t.constant((elements,), dtype)
    if target_format in MEASURED_FIRST and precision.scaling == "current":
        t.kernel("amax", (weight,), t.new((1,), "fp32"))
    traffic_bytes = weight.size_bytes + weight_bytes(elements, target_format)
    t.shaped_kernel("quantize", (elements,), target_format, 0, traffic_bytes)
    return t.new((elements,), target_format)


def dequantized_weight(
    t: Tape, base: QuantizedBase | None, shape: tuple[int, int, int], dtype: str
) -> SymbolicTensor | None:
    """A frozen (matrices, rows, columns) weight's copy for one product, if it is in 4 or 8 bits.

    bitsandbytes autograd/_functions.py: MatMul4Bit dequantizes forward and again backward. Its
    8-bit products multiply in int8 going forward; that is priced alike.
    """
    if base is None:
        return None
    matrices, rows, columns = shape
    elements = matrices * rows * columns
    stored_bytes = packed_bytes(elements, base) + matrices * scale_bytes(rows, columns, base)
    weight = t.new((elements,), dtype)
    t.shaped_kernel("dequantize", (elements,), dtype, 0, stored_bytes + weight.size_bytes)
    return weight
