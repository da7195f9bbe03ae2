"""Operands of matrix products in narrow formats: quantised copies, what is kept of them.

As Transformer Engine does it: an input is quantised once, into one copy for the product going
forward and one, the other way round, that is kept for the gradient of the weight: that copy is
all that is saved, in one byte (half a byte, nvfp4) an element. Gradients of outputs are quantised
both ways too. Tensor-parallel ranks gather the narrow copies. Weights are quantised once a step
and kept, or for each use, as the stack does.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.workload.number_formats import MatmulFormat, Scaling, weight_bytes
from ..symbolic.tape import SymbolicTensor, Tape

UNQUANTISED = frozenset({"router", "shared_expert_gate", "projection"})
"""Linear layers whose products stay in the parameters' format (DeepSeek-V3, section 3.3.1)."""
MEASURED_FIRST = ("fp8_tensor", "nvfp4")
"""Formats with a scale for the whole tensor, which a pass over it finds first."""


class Precision(NamedTuple):
    """How the products of linear layers run: format, scaling, whether weights wait quantised."""

    format: MatmulFormat
    scaling: Scaling
    cached_weights: bool


def operand(t: Tape, precision: Precision | None, x: SymbolicTensor) -> SymbolicTensor:
    """What a product reads and its backward keeps of ``x``: a narrow copy, or ``x`` itself."""
    if precision is None:
        return x
    if precision.format in MEASURED_FIRST and precision.scaling == "current":
        t.kernel("amax", (x,), t.new((1,), "fp32"))
    forward, kept = (t.new(x.shape, precision.format) for _ in range(2))
    return t.kernel("quantize", (x, forward), kept)


def quantised_weight(
    t: Tape, precision: Precision | None, elements: int, dtype: str
) -> SymbolicTensor | None:
    """The narrow copy of a weight where the stack makes one for each use; lives as long."""
    if precision is None or precision.cached_weights:
        return None
    narrow = precision.format
    weight = t.constant((elements,), dtype)
    if narrow in MEASURED_FIRST and precision.scaling == "current":
        t.kernel("amax", (weight,), t.new((1,), "fp32"))
    traffic_bytes = weight.size_bytes + weight_bytes(elements, narrow)
    t.shaped_kernel("quantize", (elements,), narrow, 0, traffic_bytes)
    return t.new((elements,), narrow)
