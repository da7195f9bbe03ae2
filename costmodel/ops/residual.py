"""Residual sums, with the last bias and dropout of a branch."""

from __future__ import annotations

from dataclasses import replace

from ..symbolic.tape import SymbolicTensor
from .context import OpContext
from .dropout import dropout


def unfused_residual(c: OpContext) -> OpContext:
    """Context for projections without a residual sum after, bias added separately."""
    if not c.stack.fusion.bias_residual:
        return c
    fusion = replace(c.stack.fusion, bias_residual=False)
    return replace(c, stack=replace(c.stack, fusion=fusion))


def residual_add(
    c: OpContext, x: SymbolicTensor, branch: SymbolicTensor, bias: bool
) -> SymbolicTensor:
    """``x + branch``, with the branch's bias and dropout if fused."""
    t = c.tape
    fused, drops = bias and c.stack.fusion.bias_residual, bias and c.drops
    if drops and fused:
        return _fused_dropout(c, x, branch)
    if drops:
        branch = dropout(c, branch)
    out = t.kernel("bias_residual" if fused else "add", (x, branch), t.like(x))
    t.record((out,), (x, branch), lambda grad: (grad, grad))
    return out


def _fused_dropout(c: OpContext, x: SymbolicTensor, branch: SymbolicTensor) -> SymbolicTensor:
    """``x + dropout(branch + bias)`` in one kernel; keeps the mask."""
    t = c.tape
    mask = t.like(branch, "bool")
    out = t.kernel("bias_dropout_residual", (x, branch, mask), t.like(x))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return grad, t.kernel("dropout_backward", (grad, mask), t.like(grad))

    t.record((out,), (x, branch), backward)
    return out
