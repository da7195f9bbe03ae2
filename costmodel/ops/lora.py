"""Low-rank adapters of linear layers (Hu et al., arXiv:2106.09685).

y = W x + B A x, with A (rank, in) and B (out, rank). Where W splits along outputs so does B, and
the gradient of A x is summed over the ranks; along inputs, A does, and A x is summed. Adapters
compute in the parameters' format.
"""

from __future__ import annotations

from ..symbolic.tape import SymbolicTensor
from .context import OpContext


def adapted(c: OpContext, names: tuple[str, ...]) -> tuple[bool, ...]:
    """True for each linear layer of ``names`` with an adapter."""
    lora = c.training.adapters
    return tuple(lora is not None and name in lora.targets for name in names)


def _rank(c: OpContext) -> int:
    lora = c.training.adapters
    return lora.rank if lora is not None else 0


def add_adapter(
    c: OpContext, x: SymbolicTensor, out: SymbolicTensor, sums_inner: bool = False
) -> SymbolicTensor:
    """Add B A x to ``out``; returns A x for the backward.

    ``x`` is (…, in), ``out`` the frozen layer's (…, out). ``sums_inner``: A is split along its
    inputs.
    """
    t, rank = c.tape, _rank(c)
    width, out_width = x.shape[-1], out.shape[-1]
    tokens = x.elements // width
    t.product(tokens, width, rank, c.dtype)
    inner = t.new((tokens, rank), c.dtype)
    if sums_inner and c.tp > 1:
        t.collective("all_reduce", c.tensor_group, inner)
    t.product(tokens, rank, out_width, c.dtype)
    t.kernel("add", (out, t.new(out.shape, c.dtype)), out)
    return inner


def adapter_backward(
    c: OpContext, x: SymbolicTensor, inner: SymbolicTensor, out_width: int, sums_inner: bool
) -> None:
    """Gradients of A and B; the adapter's part adds to ``x``'s.

    ``inner``: A x; ``out_width``: the layer's. ``sums_inner``: B is split along its outputs, so the
    gradient of A x is a sum.
    """
    t, (tokens, rank) = c.tape, inner.shape
    width = x.shape[-1]
    t.product(tokens, out_width, rank, c.dtype)
    grad_inner = t.new((tokens, rank), c.dtype)
    t.product(out_width, tokens, rank, c.dtype)
    t.parameter_gradient(t.new((out_width, rank), c.dtype), trained=True)
    t.product(tokens, rank, width, c.dtype, accumulate=True)
    if sums_inner and c.tp > 1:  # the gradient of x takes this rank's part, and is summed itself
        t.collective("all_reduce", c.tensor_group, grad_inner)
    t.product(rank, tokens, width, c.dtype)
    t.parameter_gradient(t.new((rank, width), c.dtype), trained=True)
