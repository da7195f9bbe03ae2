"""State-space mixers (Mamba-2), plain or with fused kernels.

The sequence is cut into chunks of Q tokens (arXiv:2405.21060, section 6). With T tokens, H heads of
P channels and a state of N, a chunked scan is five products, each 2·T·(…) FLOPs:

    scores inside a chunk        C·Bᵀ              Q·N a group (plain: a head)
    their values                 (C·Bᵀ ∘ L)·X      Q·P a head
    state that a chunk adds      Bᵀ·X              N·P a head
    states passed on             decay·states      plain: a product over all chunks
    output of earlier chunks     C·state           N·P a head

Worked number: T = 4096, Q = 256, H = 112, P = 64, N = 128, G = 8: 2.1 GFLOP of scores, 15.0 of
values, 7.5 each of added states and of outputs: 32 GFLOP.
"""

from __future__ import annotations

from ....spec.model.mixers import StateSpace
from ....spec.strategy import LayerStrategy
from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext
from ..eager import (
    add,
    cast,
    copied,
    expanded,
    masked,
    mean,
    mul,
    narrowed,
    parameter,
    product,
    split,
    unary,
)
from ..linear import column_linear, row_linear
from ..recompute import recomputed
from .convolution import convolution
from .fused_scans import fused_state_space


def state_space(
    c: OpContext,
    spec: StateSpace,
    hidden: int,
    strategy: LayerStrategy,
    x: SymbolicTensor,
    prefix: str = "",
) -> SymbolicTensor:
    """Projections, convolution, chunked scan, gated norm and output projection.

    One product makes gate, convolution channels and steps, as in every implementation. The
    weights' names begin with ``prefix``.
    """
    tp = strategy.tp
    widths = (spec.inner_dim // tp, spec.conv_dim // tp, spec.heads // tp)
    names = (f"{prefix}gate", f"{prefix}mixed", f"{prefix}step")
    gate, mixed, step = column_linear(c, x, widths, spec.bias, fused=True, names=names)
    del x
    if c.stack.attention == "flash":
        out = fused_state_space(c, spec, gate, mixed, step)
    else:
        out = _plain(c, spec, strategy, gate, mixed, step)
    del gate, mixed, step
    return row_linear(c, out, hidden, spec.bias, name=f"{prefix}output")


def _plain(
    c: OpContext,
    spec: StateSpace,
    strategy: LayerStrategy,
    gate: SymbolicTensor,
    mixed: SymbolicTensor,
    step: SymbolicTensor,
) -> SymbolicTensor:
    """Each operation its own kernel; selective recompute repeats convolution and scan."""

    def run(mixed: SymbolicTensor, step: SymbolicTensor) -> tuple[SymbolicTensor, ...]:
        return (_convolved_scan(c, spec, mixed, step),)

    if strategy.recompute == "selective":
        scanned = recomputed(c, run, None, mixed, step)
    else:
        scanned = run(mixed, step)[0]
    del mixed, step
    if spec.norm == "none":
        activated_gate = unary(c.tape, "silu", gate, "input")
        return cast(c.tape, mul(c.tape, scanned.view(*gate.shape), activated_gate), c.dtype)
    return _gated_norm(c, spec, scanned, gate)


def _convolved_scan(
    c: OpContext, spec: StateSpace, mixed: SymbolicTensor, step: SymbolicTensor
) -> SymbolicTensor:
    t = c.tape
    channels = convolution(c, mixed, spec.conv_kernel, spec.conv_bias)
    states = spec.groups * spec.state_dim // c.tp
    inputs, *maps = split(t, channels, (spec.inner_dim // c.tp, states, states))
    del channels
    return _scan(c, spec, inputs, maps[0], maps[1], _steps(c, step))


def _steps(c: OpContext, step: SymbolicTensor) -> SymbolicTensor:
    t = c.tape
    bias = parameter(t, (1, 1, step.shape[-1]), c.dtype)
    positive = unary(t, "softplus", add(t, step, bias), "input")
    return unary(t, "clamp", positive, "input")


def _scan(
    c: OpContext,
    spec: StateSpace,
    inputs: SymbolicTensor,
    in_map: SymbolicTensor,
    out_map: SymbolicTensor,
    step: SymbolicTensor,
) -> SymbolicTensor:
    """The chunked scan in fp32; (tokens, heads, head_dim)."""
    t, (seq, batch, heads) = c.tape, step.shape
    chunks = -(-seq // spec.chunk)
    sizes = (batch * chunks, spec.chunk, heads)
    decay = _negative_exponential(c, heads)
    width, state = spec.head_dim, spec.state_dim
    x = cast(t, inputs.view(seq * batch, heads, width), "fp32")
    maps = (seq * batch, spec.groups // c.tp, state)
    b, c_map = (_each_head(t, cast(t, m.view(*maps), "fp32"), heads) for m in (in_map, out_map))
    skip = parameter(t, (1, 1, heads, 1), c.dtype)
    residual = mul(t, skip, copied(t, x, (*sizes, width)))
    x = mul(t, x, cast(t, step, "fp32").view(seq * batch, heads, 1))
    rates = mul(t, decay, cast(t, step, "fp32").view(seq * batch, heads))
    x, b, c_map = (copied(t, v, (*sizes, v.shape[-1])) for v in (x, b, c_map))
    rates = copied(t, rates, sizes)
    total = unary(t, "cumsum", rates, "nothing")
    within = _within_chunks(t, rates, x, b, c_map)
    out = add(t, within, _between_chunks(t, batch, chunks, total, x, b, c_map))
    out = add(t, copied(t, out, out.shape), residual)
    return narrowed(t, out, (seq * batch, heads, width))


def _negative_exponential(c: OpContext, heads: int) -> SymbolicTensor:
    logarithm = parameter(c.tape, (1, heads), c.dtype)
    rate = unary(c.tape, "exp", cast(c.tape, logarithm, "fp32"), "output")
    return unary(c.tape, "neg", rate, "nothing")


def _each_head(t: Tape, x: SymbolicTensor, heads: int) -> SymbolicTensor:
    tokens, _, state = x.shape
    return expanded(t, x, (tokens, heads, state), op="copy")


def _pairwise_decay(t: Tape, rates: SymbolicTensor) -> SymbolicTensor:
    """Decay between positions of a row; (rows, positions, positions, heads)."""
    rows, positions, heads = rates.shape
    shape = (rows, positions, positions, heads)
    below = t.kernel("bitwise_not", (), t.new((positions, positions), "bool"))
    sums = masked(t, expanded(t, rates, shape), below)
    sums = unary(t, "cumsum", sums, "nothing")
    upto = t.kernel("bitwise_not", (), t.new((positions, positions), "bool"))
    return unary(t, "exp", masked(t, sums, upto), "output")


def _within_chunks(
    t: Tape, rates: SymbolicTensor, x: SymbolicTensor, b: SymbolicTensor, c_map: SymbolicTensor
) -> SymbolicTensor:
    """Contributions within a chunk; (rows, positions, heads, head_dim)."""
    rows, q, heads, width = x.shape
    state, states = b.shape[-1], rows * heads
    decay = _pairwise_decay(t, rates)
    scores = product(
        t, copied(t, c_map, c_map.shape), copied(t, b, b.shape), (states, q, state, q)
    ).view(*decay.shape)
    scores = mul(t, scores, decay)
    return product(t, scores, copied(t, x, x.shape), (states, q, q, width)).view(*x.shape)


def _between_chunks(
    t: Tape,
    batch: int,
    chunks: int,
    total: SymbolicTensor,
    x: SymbolicTensor,
    b: SymbolicTensor,
    c_map: SymbolicTensor,
) -> SymbolicTensor:
    """Contributions of earlier chunks' states; (rows, positions, heads, head_dim)."""
    rows, q, heads, width = x.shape
    state, states = b.shape[-1], rows * heads
    last = narrowed(t, total, (rows, 1, heads))
    to_end = unary(t, "exp", add(t, last, total, op="sub"), "output")
    b = mul(t, b, to_end.view(rows, q, heads, 1))
    added = product(t, copied(t, b, b.shape), copied(t, x, x.shape), (states, state, q, width))
    del b, to_end
    starts = _states_passed_on(t, batch, chunks, last.view(batch, chunks, heads), added)
    from_states = product(
        t, copied(t, c_map, c_map.shape), copied(t, starts, starts.shape), (states, q, state, width)
    )
    from_start = unary(t, "exp", total, "output")
    return mul(t, from_states.view(*x.shape), from_start.view(rows, q, heads, 1))


def _states_passed_on(
    t: Tape, batch: int, chunks: int, last: SymbolicTensor, added: SymbolicTensor
) -> SymbolicTensor:
    """State before each chunk's first token: a product over all earlier chunks."""
    states, state, width = added.shape
    heads, n = states // (batch * chunks), chunks + 1
    shape = (batch * heads, n, state * width)
    decay = _pairwise_decay(t, copied(t, last, (batch, n, heads)))
    joined = _after_zeros(t, added, shape)
    passed = product(t, decay, copied(t, joined, shape), (batch * heads, n, n, state * width))
    del joined
    return narrowed(t, passed, (states, state, width))


def _after_zeros(t: Tape, x: SymbolicTensor, shape: tuple[int, ...]) -> SymbolicTensor:
    """``x`` after an empty first state; the gradient is a view."""
    before = x.shape
    out = t.kernel("copy", (x,), t.new(shape, x.dtype))
    if x.producer is not None:
        t.record((out,), (x,), lambda grad: (SymbolicTensor(before, grad.dtype, grad.storage),))
    return out


def _gated_norm(
    c: OpContext, spec: StateSpace, x: SymbolicTensor, gate: SymbolicTensor
) -> SymbolicTensor:
    """RMS norm over each group's channels, in fp32, behind the gate or before it."""
    t, shape, groups = c.tape, gate.shape, spec.groups // c.tp
    behind = spec.norm == "behind_gate"
    x = x.view(*shape)
    if behind:
        x = mul(t, x, unary(t, "silu", cast(t, gate, "fp32"), "input"))
    x = x.view(*shape[:2], groups, shape[-1] // groups)
    squares = unary(t, "pow", x, "input")
    scale = mean(t, squares, (*x.shape[:-1], 1))
    del squares
    scale = unary(t, "rsqrt", unary(t, "add", scale, "nothing"), "output")
    x = mul(t, x, scale).view(*shape)
    x = mul(t, parameter(t, (1, 1, shape[-1]), c.dtype), x)
    if not behind:
        x = mul(t, x, unary(t, "silu", cast(t, gate, "fp32"), "input"))
    return cast(t, x, c.dtype)
