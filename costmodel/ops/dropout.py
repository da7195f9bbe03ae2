"""Dropout as symbolic work.

One kernel reads a tensor, writes it with some elements zero and the others scaled, and a byte an
element that says which; the backward reads those bytes. Korthikanti et al., "Reducing Activation
Recomputation in Large Transformer Models" (2022), section 4.1, count the same: of a block with s
tokens, b samples, hidden h and a heads, ``2·s·b·h`` bytes of masks behind its two projections and
``a·s²·b`` behind its softmax, whose dropped output of ``2·a·s²·b`` is kept too.

Limits: a flash kernel draws its mask again going backward, so it keeps none; the time it takes to
draw is not priced.
"""

from __future__ import annotations

from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.layers import BlockLayer, EmbeddingLayer, MultiTokenLayer
from ..symbolic.tape import SymbolicTensor
from .context import OpContext


def drops(stack: StackSpec, layer: object) -> bool:
    """Whether a stack that uses dropout does so in this layer: see :class:`StackSpec`."""
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
    """``x`` with elements dropped and the mask of them, for an operation that records both."""
    mask = c.tape.like(x, "bool")
    return c.tape.kernel("dropout", (x, mask), c.tape.like(x)), mask
