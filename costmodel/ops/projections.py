"""Groups of projections of one input: products, their gradients, and what is joined in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..symbolic.tape import SymbolicTensor, Tape
from .context import OpContext


class Product(NamedTuple):
    """One product: names of its results, its width, True with a bias."""

    names: tuple[str, ...]
    width: int
    bias: bool


class Projections(NamedTuple):
    """Projections of local ``widths``, in one product if ``fused``.

    ``names``: the weights' in ``layer_parameters``; empty for none.
    """

    widths: tuple[int, ...]
    bias: bool
    fused: bool
    names: tuple[str, ...] = ()

    @property
    def products(self) -> list[Product]:
        """The products that make them."""
        if self.fused:
            return [Product(self.names, sum(self.widths), self.bias)]
        if not self.names:
            return [Product((), width, self.bias) for width in self.widths]
        named = zip(self.names, self.widths, strict=True)
        return [Product((name,), width, self.bias) for name, width in named]


def split_products(
    groups: tuple[Projections, ...], lead: tuple[int, ...], products: list[SymbolicTensor]
) -> tuple[SymbolicTensor, ...]:
    """Results of all projections: views of fused products, else the products."""
    outs, made = list[SymbolicTensor](), iter(products)
    for group in groups:
        if group.fused:
            whole = next(made)
            outs += [whole.view(*lead, width) for width in group.widths]
        else:
            outs += [next(made) for _ in group.widths]
    return tuple(outs)


def joined_gradients(
    t: Tape, groups: tuple[Projections, ...], grads: tuple[SymbolicTensor, ...]
) -> tuple[SymbolicTensor, ...]:
    """Gradients of the products: those of a fused one's results are copied together."""
    joined, given = list[SymbolicTensor](), iter(grads)
    for group in groups:
        own = tuple(next(given) for _ in group.widths)
        if group.fused and len(own) > 1:
            out = t.new((*own[0].shape[:2], sum(group.widths)), own[0].dtype)
            own = (t.kernel("copy", own, out),)
        joined += own
    return tuple(joined)


def biased_gradients(
    groups: tuple[Projections, ...], joined: tuple[SymbolicTensor, ...]
) -> Iterator[tuple[SymbolicTensor, int]]:
    """Gradients of the products that have a bias, and their widths."""
    products = [item for group in groups for item in group.products]
    for product, grad in zip(products, joined, strict=True):
        if product.bias:
            yield grad, product.width


def add_biases(c: OpContext, out: SymbolicTensor, biases: tuple[bool, ...]) -> None:
    """Add the biases of projections that are one sum, unless a residual sum does."""
    if not c.stack.fusion.bias_residual:
        for _ in range(sum(biases)):
            c.tape.kernel("add", (out, c.tape.constant(out.shape[-1:], c.dtype)), out)


def summed_gradients(
    c: OpContext, grad: SymbolicTensor, biases: tuple[bool, ...]
) -> list[SymbolicTensor]:
    """Gradients of those biases, of the sum's gradient."""
    t, width = c.tape, grad.shape[-1:]
    return [t.kernel("sum", (grad,), t.new(width, c.dtype)) for _ in range(sum(biases))]


__all__ = [
    "Product",
    "Projections",
    "add_biases",
    "biased_gradients",
    "joined_gradients",
    "split_products",
    "summed_gradients",
]
