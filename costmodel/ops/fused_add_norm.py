"""Norms that are one kernel with the sums of the residual stream beside them, as in Inductor.

Going forward a branch's result is added to the stream and the sum normalised in one kernel. Going
backward the norm's gradient and the stream's are added where the first is made. The stream passes
through a norm on the tape, so that both gradients meet there.
"""

from __future__ import annotations

from ...spec.model.model_spec import NormKind
from ..symbolic.tape import SymbolicTensor
from .context import OpContext


def normalised(
    c: OpContext, x: SymbolicTensor, kind: NormKind
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """The residual stream, and its norm."""
    t, width = c.tape, x.shape[-1]
    weight = _weight(c, kind, width)
    statistics = _statistics(c, kind, x)
    passing, normal = _alias(x), t.like(x)
    t.kernel(_op(kind), (x, weight, statistics), normal)
    _record(c, kind, (passing, normal), (x,), _alias(x), statistics)
    return passing, normal


def added_and_normalised(
    c: OpContext, x: SymbolicTensor, branch: SymbolicTensor, kind: NormKind
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """``x + branch``, whose bias is negligible beside it, and the norm of the sum."""
    t, width = c.tape, x.shape[-1]
    weight = _weight(c, kind, width)
    statistics = _statistics(c, kind, x)
    total, normal = t.like(x), t.like(x)
    t.kernel(f"add_{_op(kind)}", (x, branch, weight, statistics, normal), total)
    _record(c, kind, (total, normal), (x, branch), _alias(total), statistics)
    return total, normal


def _record(
    c: OpContext,
    kind: NormKind,
    outs: tuple[SymbolicTensor, SymbolicTensor],
    inputs: tuple[SymbolicTensor, ...],
    kept: SymbolicTensor,
    statistics: SymbolicTensor,
) -> None:
    """The way back: one kernel, whose result is the gradient of every input."""
    t, width, parameters = c.tape, kept.shape[-1], _parameters(kind)
    weight, gradients = _weight(c, kind, width), _weight(c, kind, width)
    count = len(inputs)  # the way back holds nothing of the inputs but their number

    def backward(
        grad_stream: SymbolicTensor | None, grad_normal: SymbolicTensor
    ) -> tuple[SymbolicTensor | None, ...]:
        reads = (grad_normal, kept, statistics, weight, gradients)
        beside = () if grad_stream is None else (grad_stream,)
        grad = t.kernel(f"{_op(kind)}_backward", (*reads, *beside), t.like(kept))
        for _ in range(parameters):
            t.parameter_gradient(t.new((width,), c.dtype))
        return (grad,) * count

    t.record(outs, inputs, backward)


def _op(kind: NormKind) -> str:
    return "layer_norm" if kind == "layernorm" else "rms_norm"


def _parameters(kind: NormKind) -> int:
    """A scale, and with layer norms a shift; as many statistics are kept of every row."""
    return 2 if kind == "layernorm" else 1


def _weight(c: OpContext, kind: NormKind, width: int) -> SymbolicTensor:
    return c.tape.constant((_parameters(kind), width), c.dtype)


def _statistics(c: OpContext, kind: NormKind, x: SymbolicTensor) -> SymbolicTensor:
    return c.tape.new((_parameters(kind), x.elements // x.shape[-1]), "fp32")


def _alias(x: SymbolicTensor) -> SymbolicTensor:
    """The same storage off the path of gradients."""
    return SymbolicTensor(x.shape, x.dtype, x.storage)
