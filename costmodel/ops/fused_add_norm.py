"""Norms fused with the residual sums beside them, as Inductor does.

Forward, one kernel adds a branch to the residual stream and normalizes the sum. Backward, the
norm's kernel adds the stream's gradient: on the tape the stream passes through the norm.
"""

from __future__ import annotations

from ...spec.model.model_spec import NormKind
from ..symbolic.tape import SymbolicTensor
from .context import OpContext


def normalize(
    c: OpContext, x: SymbolicTensor, kind: NormKind
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """The residual stream and its norm."""
    t, width = c.tape, x.shape[-1]
    weight = _weight(c, kind, width)
    statistics = _statistics(c, kind, x)
    stream, norm = _alias(x), t.like(x)
    t.kernel(_op(kind), (x, weight, statistics), norm)
    _record(c, kind, (stream, norm), (x,), _alias(x), statistics)
    return stream, norm


def add_and_normalize(
    c: OpContext, x: SymbolicTensor, branch: SymbolicTensor, kind: NormKind
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """``x + branch`` and its norm; the branch's bias is negligible here."""
    t, width = c.tape, x.shape[-1]
    weight = _weight(c, kind, width)
    statistics = _statistics(c, kind, x)
    total, norm = t.like(x), t.like(x)
    t.kernel(f"add_{_op(kind)}", (x, branch, weight, statistics, norm), total)
    _record(c, kind, (total, norm), (x, branch), _alias(total), statistics)
    return total, norm


def _record(
    c: OpContext,
    kind: NormKind,
    outs: tuple[SymbolicTensor, SymbolicTensor],
    inputs: tuple[SymbolicTensor, ...],
    saved: SymbolicTensor,
    statistics: SymbolicTensor,
) -> None:
    """Record the backward: one kernel for the gradient of every input."""
    t, width, parameters = c.tape, saved.shape[-1], _parameters(kind)
    weight, gradients = _weight(c, kind, width), _weight(c, kind, width)
    count = len(inputs)  # the backward holds only the number of inputs

    def backward(
        grad_stream: SymbolicTensor | None, grad_normal: SymbolicTensor
    ) -> tuple[SymbolicTensor | None, ...]:
        reads = (grad_normal, saved, statistics, weight, gradients)
        stream_reads = () if grad_stream is None else (grad_stream,)
        grad = t.kernel(f"{_op(kind)}_backward", (*reads, *stream_reads), t.like(saved))
        for _ in range(parameters):
            t.parameter_gradient(t.new((width,), c.dtype))
        return (grad,) * count

    t.record(outs, inputs, backward)


def _op(kind: NormKind) -> str:
    return "layer_norm" if kind == "layernorm" else "rms_norm"


def _parameters(kind: NormKind) -> int:
    """Scale, for layer norm a shift; as many statistics per row."""
    return 2 if kind == "layernorm" else 1


def _weight(c: OpContext, kind: NormKind, width: int) -> SymbolicTensor:
    return c.tape.constant((_parameters(kind), width), c.dtype)


def _statistics(c: OpContext, kind: NormKind, x: SymbolicTensor) -> SymbolicTensor:
    return c.tape.new((_parameters(kind), x.elements // x.shape[-1]), "fp32")


def _alias(x: SymbolicTensor) -> SymbolicTensor:
    return SymbolicTensor(x.shape, x.dtype, x.storage)
