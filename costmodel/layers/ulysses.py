"""Ulysses: exchange tokens for heads before attention, and heads for tokens after.

Outside attention each of P ranks has N/P tokens and all heads; inside, all N tokens and 1/P of the
heads (Jacobs et al., DeepSpeed-Ulysses, arXiv:2309.14509, section 3). Queries, keys, values and the
output take one all-to-all each: with as many key heads as query heads a rank sends 4·N·h/P elements
each way.
"""

from __future__ import annotations

from ..ops.context import OpContext, in_order
from ..symbolic.tape import SymbolicTensor


def tokens_for_heads(c: OpContext, x: SymbolicTensor, ordered: bool = False) -> SymbolicTensor:
    """All-to-all from part of the tokens to part of the heads.

    (tokens / P, batch, heads, width) to (tokens, batch, heads / P, width). Sends tokens in memory
    order, so a gradient in another order is copied first, unless ``ordered``.
    """
    if c.head_exchange.size == 1:
        return x
    before, out = x.shape, _gather_tokens(c, x)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (_gather_heads(c, grad if ordered else in_order(c, grad), before),)

    c.tape.record((out,), (x,), backward)
    return out


def heads_for_tokens(c: OpContext, x: SymbolicTensor, heads: int) -> SymbolicTensor:
    """All-to-all from part of the heads to part of the tokens.

    (tokens, batch, heads / P · width) to (tokens / P, batch, heads · width), of ``heads`` in all.
    """
    ranks = c.head_exchange.size
    if ranks == 1:
        return x
    tokens, batch, joined = x.shape
    local = (tokens, batch, heads // ranks, joined * ranks // heads)
    out = _gather_heads(c, x, (tokens // ranks, batch, joined * ranks))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_heads = grad.view(tokens // ranks, batch, heads, local[-1])
        return (_gather_tokens(c, grad_heads).view(tokens, batch, joined),)

    c.tape.record((out,), (x,), backward)
    return out


def _gather_tokens(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    t, ranks = c.tape, c.head_exchange.size
    tokens, batch, heads, width = x.shape
    packed = t.kernel("copy", (x,), t.like(x))
    out = t.new((tokens * ranks, batch, heads // ranks, width), x.dtype)
    t.collective("all_to_all", c.head_exchange, packed, term="exposed_cp")
    return out


def _gather_heads(c: OpContext, x: SymbolicTensor, shape: tuple[int, ...]) -> SymbolicTensor:
    t = c.tape
    received = t.new(shape, x.dtype)
    t.collective("all_to_all", c.head_exchange, x, term="exposed_cp")
    return t.kernel("copy", (received,), t.like(received))
