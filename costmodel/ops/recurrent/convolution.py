"""Causal depthwise convolution with SiLU, before a scan over the sequence."""

from __future__ import annotations

from ...symbolic.tape import SymbolicTensor
from ..context import OpContext
from ..eager import alias, narrowed, unary


def convolution(
    c: OpContext, x: SymbolicTensor, kernel: int, bias: bool, *, activated: bool = True
) -> SymbolicTensor:
    """SiLU of the convolved (seq, batch, channels), as eager torch runs it.

    Both ends are padded and the tail is cut off: ``kernel - 1`` surplus rows. FLOPs are those of
    torch's counter; the backward has twice as many. ``activated`` false leaves out the SiLU.
    """
    t, (seq, batch, channels) = c.tape, x.shape
    out = t.new((seq + kernel - 1, batch, channels), c.dtype)
    _forward_kernel(c, x, out, kernel, bias)
    saved = alias(x)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (convolution_backward(c, grad, saved, kernel, bias),)

    if x.producer is not None:
        t.record((out,), (x,), backward)
    del x
    out = narrowed(t, out, (seq, batch, channels))
    return unary(t, "silu", out, "input") if activated else out


def fused_convolution(c: OpContext, x: SymbolicTensor, kernel: int, bias: bool) -> SymbolicTensor:
    """The same in one kernel, off the gradient path.

    As in causal-conv1d (Dao-AILab, 1.5): the backward needs only the input.
    """
    out = c.tape.like(x)
    _forward_kernel(c, x, out, kernel, bias)
    return out


def recorded_convolution(
    c: OpContext, x: SymbolicTensor, kernel: int, bias: bool
) -> SymbolicTensor:
    """The kernel on the gradient path; keeps its input."""
    out = fused_convolution(c, x, kernel, bias)
    saved = alias(x)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (convolution_backward(c, grad, saved, kernel, bias),)

    c.tape.record((out,), (x,), backward)
    return out


def convolution_backward(
    c: OpContext, grad: SymbolicTensor, x: SymbolicTensor, kernel: int, bias: bool
) -> SymbolicTensor:
    """Input gradient; those of weight and bias go to the layer."""
    t, channels = c.tape, x.shape[-1]
    grad_x = t.like(x)
    shapes = ((channels, kernel), (channels,))[: 2 if bias else 1]
    gradients = tuple(t.new(shape, c.dtype) for shape in shapes)
    weight = t.constant((channels, kernel + bias), c.dtype)
    traffic_bytes = sum(value.size_bytes for value in (grad, x, weight, grad_x, *gradients))
    flops = 2 * 2 * grad.elements * kernel
    t.shaped_kernel("causal_conv_backward", (grad.elements,), c.dtype, flops, traffic_bytes)
    for gradient in gradients:
        t.parameter_gradient(gradient)
    return grad_x


def _forward_kernel(
    c: OpContext, x: SymbolicTensor, out: SymbolicTensor, kernel: int, bias: bool
) -> None:
    weight = c.tape.constant((x.shape[-1], kernel + bias), c.dtype)
    traffic_bytes = x.size_bytes + weight.size_bytes + out.size_bytes
    flops = 2 * out.elements * kernel
    c.tape.shaped_kernel("causal_conv", (out.elements,), c.dtype, flops, traffic_bytes)
