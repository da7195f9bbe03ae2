"""Dropout.

One kernel writes the scaled tensor with dropped elements zero, plus a mask of one byte per element
for the backward. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models" (2022), section 4.1, count the same: for a block with s tokens, b samples, hidden h and a
heads, ``2·s·b·h`` bytes of masks after its two projections and ``a·s²·b`` after its softmax, whose
dropped output of ``2·a·s²·b`` is kept too.

Limits: a flash kernel keeps no mask, but regenerates it; time to generate masks is not priced.
"""

from __future__ import annotations

from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.layers import BlockLayer, EmbeddingLayer, MultiTokenLayer
from ..symbolic.tape import SymbolicTensor
from .context import OpContext


def drops(stack: StackSpec, layer: object) -> bool:
    """True if the stack drops in this layer; see ``StackSpec``."""
    if isinstance(layer, EmbeddingLayer):
        return stack.dropout and layer.positions != 0
    if isinstance(layer, MultiTokenLayer):
        layer = layer.block
    return stack.dropout and isinstance(layer, BlockLayer) and layer.norm == "layernorm"


def dropout(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """``x`` with elements dropped; keeps the mask."""
    t = c.tape
    out, mask = dropped(c, x)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("dropout_backward", (grad, mask), t.like(grad)),)

    t.record((out,), (x,), backward)
    return out


def dropped(c: OpContext, x: SymbolicTensor) -> tuple[SymbolicTensor, SymbolicTensor]:
    """``x`` with elements dropped, and the mask, for operations that record both."""
    mask = c.tape.like(x, "bool")
    return c.tape.kernel("dropout", (x, mask), c.tape.like(x)), mask
