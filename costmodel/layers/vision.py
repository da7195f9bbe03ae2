"""Layers of vision towers: patch embedding and projector."""

from __future__ import annotations

from ...spec.model.layers import PatchLayer, ProjectorLayer
from ...spec.strategy import LayerStrategy
from ..ops.activation import activation
from ..ops.context import OpContext, norm
from ..ops.linear import column_linear, replicated_linear, row_linear
from ..ops.residual import residual_add, unfused_residual
from ..symbolic.tape import SymbolicTensor


def patches(c: OpContext, layer: PatchLayer, pixels: SymbolicTensor) -> SymbolicTensor:
    """Image tokens from (tokens, batch, values per patch), class token included.

    With a split sequence each rank projects its patches, and the fullest has no class token.
    """
    tokens = pixels.shape[0]
    rows = tokens - 1 if layer.class_token and tokens == layer.tokens else tokens
    patch_values = pixels.view(rows, *pixels.shape[1:])
    out = replicated_linear(
        c, patch_values, layer.hidden, layer.bias, name="patches", differentiable=False
    )
    del patch_values
    if layer.class_token or layer.positions:
        out = _with_positions(c, layer, out, tokens)
    return out if layer.norm is None else norm(c, out, layer.norm)


def _with_positions(
    c: OpContext, layer: PatchLayer, out: SymbolicTensor, tokens: int
) -> SymbolicTensor:
    """Prepend the class token (a copy), then add position vectors."""
    t, patches_only = c.tape, out.shape
    _, batch, hidden = patches_only
    joined = out
    if layer.class_token:
        joined = t.kernel("copy", (out,), t.new((tokens, batch, hidden), out.dtype))
    if layer.positions:
        position_rows = t.constant((tokens, hidden), c.dtype)
        joined = t.kernel("add", (joined, position_rows), t.like(joined))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if layer.positions:
            rows = layer.position_rows or layer.tokens
            table = t.kernel("zeros", (), t.new((rows, hidden), c.dtype))
            t.kernel("sum", (grad,), t.constant((tokens, hidden), c.dtype))
            t.parameter_gradient(table)
        if layer.class_token:
            first = t.constant((1, batch, hidden), c.dtype)
            t.parameter_gradient(t.kernel("sum", (first,), t.new((hidden,), c.dtype)))
            grad = SymbolicTensor(patches_only, grad.dtype, grad.storage)
        return (grad,)

    t.record((joined,), (out,), backward)
    return joined


def projector(
    c: OpContext, layer: ProjectorLayer, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Mean or concatenation of neighboring tokens, norm, then an MLP or a projection.

    Further projectors are priced as if all read the last block, and their outputs were one sum.
    """
    c = unfused_residual(c)
    read = x if layer.further else None
    if layer.pool > 1:
        x = _pooled(c, x, layer.pool)
    if layer.norm is not None:
        x = norm(c, x, layer.norm)
    x = _merged(x, layer.merge)
    if layer.merged is not None:
        x = replicated_linear(c, x, layer.merged, bias=False, name="merge")
    out = _projection(c, layer, strategy, x, "")
    del x
    if read is None or layer.norm is None:
        return out
    for number in range(layer.further):
        normed = norm(c, _merged(read, layer.merge), layer.norm)
        added = _projection(c, layer, strategy, normed, f"further_{number}_")
        del normed
        out = residual_add(c, out, added, bias=False)
    return out


def _projection(
    c: OpContext, layer: ProjectorLayer, strategy: LayerStrategy, x: SymbolicTensor, prefix: str
) -> SymbolicTensor:
    if not layer.inner:
        return replicated_linear(c, x, layer.out, layer.bias, name=f"{prefix}projection")
    width = (layer.inner // strategy.weight_split,)
    wide = column_linear(c, x, width, layer.bias, fused=False, names=(f"{prefix}up",))
    del x
    inner = activation(c, wide, "gelu", layer.bias)
    del wide
    return row_linear(c, inner, layer.out, layer.bias, name=f"{prefix}down")


def _merged(x: SymbolicTensor, merge: int) -> SymbolicTensor:
    """``merge`` neighboring tokens side by side: a view."""
    return x.view(x.shape[0] // merge, x.shape[1], x.shape[2] * merge)


def _pooled(c: OpContext, x: SymbolicTensor, pool: int) -> SymbolicTensor:
    """The mean of ``pool`` neighboring tokens."""
    t, before, dtype = c.tape, x.shape, x.dtype
    out = t.kernel("mean", (x,), t.new((before[0] // pool, *before[1:]), dtype))
    t.record((out,), (x,), lambda grad: (t.kernel("div", (grad,), t.new(before, dtype)),))
    return out
