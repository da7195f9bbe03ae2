"""Activation functions of feed-forward layers, plain and gated."""

from __future__ import annotations

from ...spec.model.feed_forward import Activation
from ..symbolic.tape import SymbolicTensor
from .context import OpContext


def activation(
    c: OpContext, projected: tuple[SymbolicTensor, ...], kind: Activation, bias: bool
) -> SymbolicTensor:
    """Apply the activation to a projection, or to gate and value.

    GELU and gated forms keep their input; ReLU its output, as the next product does.
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
    """ReLU, optionally squared (So et al., arXiv:2109.08668, section 4)."""
    t = c.tape
    positive = t.kernel("relu", (x,), t.like(x))
    out = t.kernel("pow", (positive,), t.like(x)) if squared else positive
    saved = SymbolicTensor(positive.shape, positive.dtype, positive.storage)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if squared:
            grad = t.kernel("mul", (grad, saved), t.like(saved))
        return (t.kernel("threshold_backward", (grad, saved), t.like(saved)),)

    t.record((out,), (x,), backward)
    return out


def _gated(c: OpContext, plain: str, gate: SymbolicTensor, up: SymbolicTensor) -> SymbolicTensor:
    """``plain(gate) · up`` (Shazeer, arXiv:2002.05202).

    The backward recomputes the activation.
    """
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
    """GPT-OSS's clamped SwiGLU, as autograd does it or in one kernel.

    ``(min(up) + 1) · g · sigmoid(alpha · g)`` with g = min(gate), where ``min`` bounds the values.
    The fused kernel keeps its two inputs.
    """
    if c.stack.fusion.gated_activation:
        return _fused_clamped_swiglu(c, gate, up)
    t = c.tape
    clamped = t.kernel("clamp", (gate,), t.like(gate))
    shifted_up = t.kernel("clamp", (up,), t.like(up))
    sigmoid = t.kernel("mul", (clamped,), t.like(gate))
    sigmoid = t.kernel("sigmoid", (sigmoid,), t.like(gate))
    swish = t.kernel("mul", (clamped, sigmoid), t.like(gate))
    shifted_up = t.kernel("add", (shifted_up,), t.like(up))
    out = t.kernel("mul", (shifted_up, swish), t.like(up))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_up = t.kernel("mul", (grad, swish), t.like(up))
        grad_up = t.kernel("clamp_backward", (grad_up, up), t.like(up))
        grad_swish = t.kernel("mul", (grad, shifted_up), t.like(gate))
        grad_clamped = t.kernel("mul", (grad_swish, sigmoid), t.like(gate))
        grad_sigmoid = t.kernel("mul", (grad_swish, clamped), t.like(gate))
        del grad_swish
        grad_sigmoid = t.kernel("sigmoid_backward", (grad_sigmoid, sigmoid), t.like(gate))
        grad_sigmoid = t.kernel("mul", (grad_sigmoid,), t.like(gate))
        grad_clamped = t.kernel("add", (grad_clamped, grad_sigmoid), t.like(gate))
        del grad_sigmoid
        return (t.kernel("clamp_backward", (grad_clamped, gate), t.like(gate)), grad_up)

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
