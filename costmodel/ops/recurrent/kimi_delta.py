"""Kimi delta attention (arXiv:2510.26692, section 3): a delta rule that decays by channel.

Projections and gates here, the scan in :mod:`kimi_delta_scan`. FLOPs of a fused scan are those of a
gated delta rule of the same sizes (:mod:`delta_rule`); plain torch makes the scores inside a chunk
without matrix products, from every pair of tokens and every channel.
"""

from __future__ import annotations

from ....spec.model.mixers import KimiDeltaAttention
from ....spec.strategy import LayerStrategy
from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext
from ..eager import add, alias, cast, copied, mean, mul, parameter, split, unary
from ..linear import column_linear, replicated_linear, row_linear
from ..recompute import recomputed
from .convolution import convolution, recorded_convolution
from .fused_scans import gated_norm
from .kimi_delta_scan import fused_scan, plain_scan


def kimi_delta(
    c: OpContext,
    spec: KimiDeltaAttention,
    hidden: int,
    strategy: LayerStrategy,
    x: SymbolicTensor,
) -> SymbolicTensor:
    """Projections, convolution, scan, gated norm and output projection."""
    tp = strategy.tp
    heads, width = spec.heads // tp, spec.inner_dim // tp
    names = ("query", "key", "value")
    mixed = _joined(c.tape, column_linear(c, x, (width,) * 3, False, False, names=names))
    decay = _decay(c, spec, heads, _low_rank(c, spec, width, x, "decay"))
    (raw_rate,) = column_linear(c, x, (heads,), False, False, names=("rates",))
    rate = unary(c.tape, "sigmoid", raw_rate, "output")
    del raw_rate

    def run(*inputs: SymbolicTensor) -> tuple[SymbolicTensor, ...]:
        return (_convolved_scan(c, spec, *inputs),)

    if strategy.recompute == "selective" and c.stack.attention != "flash":
        out = recomputed(c, run, None, mixed, decay, rate)
    else:
        out = run(mixed, decay, rate)[0]
    del mixed, decay, rate
    gate = _low_rank(c, spec, width, x, "gate")
    del x
    if c.stack.attention == "flash":
        out = gated_norm(c, out, gate, heads, spec.head_dim)
    else:
        out = _gated_norm(c, spec, out, gate)
    del gate
    return row_linear(c, out, hidden, bias=False, name="output")


def _low_rank(
    c: OpContext, spec: KimiDeltaAttention, width: int, x: SymbolicTensor, name: str
) -> SymbolicTensor:
    """Two projections through one head's width."""
    down = replicated_linear(c, x, spec.head_dim, False, name=f"{name}_down")
    return column_linear(c, down, (width,), False, False, names=(f"{name}_up",))[0]


def _joined(t: Tape, parts: tuple[SymbolicTensor, ...]) -> SymbolicTensor:
    lead, shapes = parts[0].shape[:-1], [part.shape for part in parts]
    out = t.new((*lead, sum(shape[-1] for shape in shapes)), parts[0].dtype)
    t.kernel("copy", parts, out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return tuple(SymbolicTensor(shape, grad.dtype, grad.storage) for shape in shapes)

    t.record((out,), parts, backward)
    return out


def _decay(
    c: OpContext, spec: KimiDeltaAttention, heads: int, raw: SymbolicTensor
) -> SymbolicTensor:
    """Log decay of each channel, fp32: minus a head's speed times the softplus of the steps."""
    t, lead = c.tape, raw.shape[:2]
    width = raw.shape[-1]
    bias = cast(t, parameter(t, (1, 1, width), c.dtype), "fp32")
    step = add(t, cast(t, raw, "fp32"), bias).view(*lead, heads, spec.head_dim)
    if c.stack.attention == "flash":
        softplus = unary(t, "softplus", step, "input")
    else:
        softplus = _softplus(t, step)
    del step
    logarithm = cast(t, parameter(t, (1, 1, heads, 1), c.dtype), "fp32")
    speed = unary(t, "neg", unary(t, "exp", logarithm, "output"), "nothing")
    return mul(t, speed, softplus)


def _softplus(t: Tape, x: SymbolicTensor) -> SymbolicTensor:
    """Written out: a large input itself, else the logarithm of one more than its exponential."""
    large = t.kernel("gt", (x,), t.new(x.shape, "bool"))
    grown = unary(t, "add", unary(t, "exp", x, "output"), "nothing")
    small = unary(t, "log", grown, "input")
    out = t.kernel("where", (large, x, small), t.like(x))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return tuple(t.kernel("where", (large, grad), t.like(grad)) for _ in range(2))

    t.record((out,), (x, small), backward)
    return out


def _convolved_scan(
    c: OpContext,
    spec: KimiDeltaAttention,
    mixed: SymbolicTensor,
    decay: SymbolicTensor,
    rate: SymbolicTensor,
) -> SymbolicTensor:
    """(seq, batch, inner)."""
    t, (seq, batch, heads, dim) = c.tape, decay.shape
    if c.stack.attention == "flash":
        channels = recorded_convolution(c, mixed, spec.conv_kernel, bias=False)
        del mixed
        return fused_scan(c, spec, channels, decay, rate)
    channels = convolution(c, mixed, spec.conv_kernel, bias=False)
    del mixed
    parts = split(t, channels, (heads * dim,) * 3)
    del channels
    query, key, value = (_fp32(t, x.view(seq, batch, heads, dim)) for x in parts)
    del parts
    query, key = (_unit_length(t, x) for x in (query, key))
    out = plain_scan(t, spec.chunk, (query, key, value), _fp32(t, decay), _fp32(t, rate))
    del query, key, value
    return copied(t, out, (seq, batch, heads * dim), c.dtype)


def _fp32(t: Tape, x: SymbolicTensor) -> SymbolicTensor:
    """A copy in fp32, heads before tokens."""
    return copied(t, x, x.shape, "fp32")


def _unit_length(t: Tape, x: SymbolicTensor) -> SymbolicTensor:
    """``x`` over the root of its squares' sum; a quotient keeps both."""
    shape = (*x.shape[:-1], 1)
    squares = mean(t, mul(t, x, x), shape)
    length = unary(t, "sqrt", unary(t, "add", squares, "nothing"), "output")
    out = t.kernel("div", (x, length), t.like(x))
    kept, kept_length = alias(x), alias(length)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_x = t.kernel("div", (grad, kept_length), t.like(grad))
        product = t.kernel("mul", (grad, kept), t.like(grad))
        return grad_x, t.kernel("sum", (product,), t.like(kept_length))

    t.record((out,), (x, length), backward)
    return out


def _gated_norm(
    c: OpContext, spec: KimiDeltaAttention, x: SymbolicTensor, gate: SymbolicTensor
) -> SymbolicTensor:
    """Each head's RMS norm, its weight, then a sigmoid gate, all in fp32."""
    t, shape = c.tape, gate.shape
    heads = (x.elements // spec.head_dim, spec.head_dim)
    x = cast(t, x.view(*heads), "fp32")
    scale = mean(t, unary(t, "pow", x, "input"), (heads[0], 1))
    scale = unary(t, "rsqrt", unary(t, "add", scale, "nothing"), "output")
    weight = cast(t, parameter(t, (1, spec.head_dim), c.dtype), "fp32")
    x = mul(t, weight, mul(t, x, scale))
    activated_gate = unary(t, "sigmoid", cast(t, gate.view(*heads), "fp32"), "output")
    return cast(t, mul(t, x, activated_gate), c.dtype).view(*shape)
