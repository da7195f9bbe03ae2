"""Gated delta-rule mixers (Gated DeltaNet), plain or with fused kernels.

A head's state, K x V, decays by a gate and is corrected by each token's key and value. Q tokens at
a time become products through the inverse of a triangular system (the WY form: arXiv:2412.06464,
section 3; arXiv:2406.06484, section 3). With T tokens, a value head does

    system of the keys    K·Kᵀ          2·T·Q·K     and its inverse   T·Q²/3
    new values and keys   A·V, A·K      2·T·Q·(K + V)
    states                2 products    4·T·K·V
    results               2 + 1         2·T·Q·(K + V) + 2·T·K·V

The plain form solves the system instead, which torch does not count. Worked number: T = 4096, Q =
64, K = V = 128, 32 heads: 4.3 GFLOP for the system without its inverse, 4.3 + 8.6 for values and
states, 8.6 + 4.3 for results: 30 GFLOP.
"""

from __future__ import annotations

from ....spec.model.mixers import DeltaRule
from ....spec.strategy import LayerStrategy
from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext
from ..eager import add, cast, copied, expanded, mean, mul, parameter, split, unary
from ..linear import column_linear, row_linear
from ..recompute import recomputed
from .convolution import convolution
from .delta_rule_scan import plain_scan
from .fused_scans import fused_delta_rule, gated_norm


def delta_rule(
    c: OpContext, spec: DeltaRule, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Projections, convolution, chunked scan, gated norm and output projection."""
    tp = strategy.tp
    widths = (spec.conv_dim // tp, spec.inner_dim // tp, 2 * spec.value_heads // tp)
    names = ("mixed", "gate", "rates")
    mixed, gate, rates = column_linear(c, x, widths, bias=False, fused=False, names=names)
    del x
    decay, rate = _gates(c, spec.value_heads // tp, rates)
    del rates
    if c.stack.attention == "flash":
        out = fused_delta_rule(c, spec, mixed, decay, rate)
        del mixed
        out = gated_norm(c, out, gate, spec.value_heads // tp, spec.value_dim)
    else:
        out = _plain(c, spec, strategy, mixed, decay, rate)
        del mixed
        out = _gated_norm(c, spec, out, gate)
    del gate, decay, rate
    return row_linear(c, out, hidden, bias=False, name="output")


def _gates(
    c: OpContext, heads: int, rates: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Each head's log decay (fp32) and learning rate, per token."""
    t = c.tape
    raw_rate, raw_step = split(t, rates, (heads, heads))
    rate = unary(t, "sigmoid", raw_rate, "output")
    logarithm = cast(t, parameter(t, (1, 1, heads), c.dtype), "fp32")
    speed = unary(t, "neg", unary(t, "exp", logarithm, "output"), "nothing")
    step = add(t, cast(t, raw_step, "fp32"), parameter(t, (1, 1, heads), c.dtype))
    return mul(t, speed, unary(t, "softplus", step, "input")), rate


def _plain(
    c: OpContext,
    spec: DeltaRule,
    strategy: LayerStrategy,
    mixed: SymbolicTensor,
    decay: SymbolicTensor,
    rate: SymbolicTensor,
) -> SymbolicTensor:
    """Each operation its own kernel; selective recompute repeats convolution and scan."""

    def run(
        mixed: SymbolicTensor, decay: SymbolicTensor, rate: SymbolicTensor
    ) -> tuple[SymbolicTensor, ...]:
        return (_convolved_scan(c, spec, mixed, decay, rate),)

    if strategy.recompute == "selective":
        return recomputed(c, run, None, mixed, decay, rate)
    return run(mixed, decay, rate)[0]


def _convolved_scan(
    c: OpContext,
    spec: DeltaRule,
    mixed: SymbolicTensor,
    decay: SymbolicTensor,
    rate: SymbolicTensor,
) -> SymbolicTensor:
    """The scan in fp32; (seq, batch, inner)."""
    t, (seq, batch, heads) = c.tape, decay.shape
    channels = convolution(c, mixed, spec.conv_kernel, bias=False)
    del mixed
    width = spec.query_dim // c.tp
    query, key, value = split(t, channels, (width, width, heads * spec.value_dim))
    del channels
    query, key = (_each_value_head(t, spec, x.view(seq, batch, -1), heads) for x in (query, key))
    query, key = (_unit_length(t, _fp32(t, x)) for x in (query, key))
    query = unary(t, "mul", query, "nothing")
    value = _fp32(t, value.view(seq, batch, heads, spec.value_dim))
    out = plain_scan(t, spec.chunk, query, key, value, _fp32(t, decay), _fp32(t, rate))
    del query, key, value
    return copied(t, out, (seq, batch, heads * spec.value_dim), c.dtype)


def _each_value_head(t: Tape, spec: DeltaRule, x: SymbolicTensor, heads: int) -> SymbolicTensor:
    seq, batch, _ = x.shape
    key_heads = x.elements // (seq * batch * spec.key_dim)
    x = x.view(seq, batch, key_heads, spec.key_dim)
    if key_heads == heads:
        return x
    return expanded(t, x, (seq, batch, heads, spec.key_dim), op="copy")


def _fp32(t: Tape, x: SymbolicTensor) -> SymbolicTensor:
    """A copy in fp32, heads before tokens."""
    return copied(t, x, x.shape, "fp32")


def _unit_length(t: Tape, x: SymbolicTensor) -> SymbolicTensor:
    shape = (*x.shape[:-1], 1)
    squares = mean(t, mul(t, x, x), shape)
    scale = unary(t, "rsqrt", unary(t, "add", squares, "nothing"), "output")
    return mul(t, x, scale)


def _gated_norm(
    c: OpContext, spec: DeltaRule, x: SymbolicTensor, gate: SymbolicTensor
) -> SymbolicTensor:
    """Each head's RMS norm in fp32, then weight, then gate."""
    t, shape = c.tape, gate.shape
    heads = (x.elements // spec.value_dim, spec.value_dim)
    x = cast(t, x.view(*heads), "fp32")
    scale = mean(t, unary(t, "pow", x, "input"), (heads[0], 1))
    scale = unary(t, "rsqrt", unary(t, "add", scale, "nothing"), "output")
    x = cast(t, mul(t, x, scale), c.dtype)
    x = mul(t, parameter(t, (1, spec.value_dim), c.dtype), x)
    activated_gate = unary(t, "silu", cast(t, gate.view(*heads), "fp32"), "input")
    return cast(t, mul(t, x, activated_gate), c.dtype).view(*shape)
