"""Activations of feed-forward parts as symbolic work, plain and gated."""

from __future__ import annotations

from ...spec.model.feed_forward import Activation
from ..symbolic.tape import SymbolicTensor
from .context import OpContext


def activation(
    c: OpContext, projected: tuple[SymbolicTensor, ...], kind: Activation, bias: bool
) -> SymbolicTensor:
    """The activation of one projection, or of a gate and what it gates.

    GELU and gated forms keep what went in, ReLU what came out, which the next product keeps too.
    """
    if kind == "clamped_swiglu":
        return _clamped_swiglu(c, *projected)
    if kind in ("swiglu", "geglu", "geglu_tanh"):
        return _gated(c, "silu" if kind == "swiglu" else "gelu", *projected)
    (x,) = projected
    if kind in ("relu", "relu2"):
        return _relu(c, x, squared=kind == "relu2")
    t = c.tape
    op = "bias_gelu" if bias and c.stack.fusion.bias_activation else "gelu"
    out = t.kernel(op, (x,), t.like(x))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel(f"{op}_backward", (grad, x), t.like(x)),)

    t.record((out,), (x,), backward)
    return out


def _relu(c: OpContext, x: SymbolicTensor, squared: bool) -> SymbolicTensor:
    """ReLU, perhaps squared (So et al., arXiv:2109.08668, section 4)."""
    t = c.tape
    positive = t.kernel("relu", (x,), t.like(x))
    out = t.kernel("pow", (positive,), t.like(x)) if squared else positive
    kept = SymbolicTensor(positive.shape, positive.dtype, positive.storage)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if squared:
            grad = t.kernel("mul", (grad, kept), t.like(kept))
        return (t.kernel("threshold_backward", (grad, kept), t.like(kept)),)

    t.record((out,), (x,), backward)
    return out


def _gated(c: OpContext, plain: str, gate: SymbolicTensor, up: SymbolicTensor) -> SymbolicTensor:
    """``plain(gate) · up`` (Shazeer, arXiv:2002.05202); going backward the first is made again."""
    t = c.tape
    fused, in_place = c.stack.fusion.gated_activation, c.stack.fusion.in_place
    name = {"silu": "swiglu", "gelu": "geglu"}[plain]
    if fused:
        out = t.kernel(name, (gate, up), t.like(gate))
    else:
        out = t.kernel(plain, (gate,), t.like(gate))
        t.kernel("mul", (out, up), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if fused:
            grad_gate, grad_up = (gate, up) if in_place else (t.like(gate), t.like(gate))
            t.kernel(f"{name}_backward", (grad, gate, up, grad_up), grad_gate)
            return (grad_gate, grad_up)
        grad_up = t.like(gate)
        t.kernel(plain, (gate,), grad_up)
        t.kernel("mul", (grad_up, grad), grad_up)
        grad_plain = t.kernel("mul", (grad, up), t.like(gate))
        return (t.kernel(f"{plain}_backward", (grad_plain, gate), t.like(gate)), grad_up)

    t.record((out,), (gate, up), backward)
    return out


def _clamped_swiglu(c: OpContext, gate: SymbolicTensor, up: SymbolicTensor) -> SymbolicTensor:
    """``(min(up) + 1) · g · sigmoid(alpha · g)`` with g = min(gate) (GPT-OSS), as autograd does it.

    ``min`` bounds the values; one kernel, keeping its two inputs, where the stack fuses.
    """
    if c.stack.fusion.gated_activation:
        return _fused_clamped_swiglu(c, gate, up)
    t = c.tape
    bounded = t.kernel("clamp", (gate,), t.like(gate))
    raised = t.kernel("clamp", (up,), t.like(up))
    share = t.kernel("mul", (bounded,), t.like(gate))
    share = t.kernel("sigmoid", (share,), t.like(gate))
    inner = t.kernel("mul", (bounded, share), t.like(gate))
    raised = t.kernel("add", (raised,), t.like(up))
    out = t.kernel("mul", (raised, inner), t.like(up))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_up = t.kernel("mul", (grad, inner), t.like(up))
        grad_up = t.kernel("clamp_backward", (grad_up, up), t.like(up))
        grad_inner = t.kernel("mul", (grad, raised), t.like(gate))
        grad_bounded = t.kernel("mul", (grad_inner, share), t.like(gate))
        grad_share = t.kernel("mul", (grad_inner, bounded), t.like(gate))
        del grad_inner
        grad_share = t.kernel("sigmoid_backward", (grad_share, share), t.like(gate))
        grad_share = t.kernel("mul", (grad_share,), t.like(gate))
        grad_bounded = t.kernel("add", (grad_bounded, grad_share), t.like(gate))
        del grad_share
        return (t.kernel("clamp_backward", (grad_bounded, gate), t.like(gate)), grad_up)

    t.record((out,), (gate, up), backward)
    return out


def _fused_clamped_swiglu(c: OpContext, gate: SymbolicTensor, up: SymbolicTensor) -> SymbolicTensor:
    t = c.tape
    out = t.kernel("clamped_swiglu", (gate, up), t.like(gate))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_up = t.like(up)
        grad_gate = t.like(gate)
        t.kernel("clamped_swiglu_backward", (grad, gate, up, grad_up), grad_gate)
        return (grad_gate, grad_up)

    t.record((out,), (gate, up), backward)
    return out
