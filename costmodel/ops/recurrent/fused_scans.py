"""Fused kernels of chunked scans, which recompute the chunk states.

The backward recomputes unkept tensors, then runs two gradients per forward product. States pass
between kernels in fp32.
"""

from __future__ import annotations

from ....spec.model.mixers import DeltaRule, StateSpace
from ...symbolic.tape import SymbolicTensor
from ..context import OpContext
from ..eager import alias
from .convolution import convolution_backward, fused_convolution, recorded_convolution

STATE_PASSES = 4
"""Chunk states are written, read, rewritten with the earlier chunks added, and read again."""


def fused_state_space(
    c: OpContext,
    spec: StateSpace,
    gate: SymbolicTensor,
    mixed: SymbolicTensor,
    step: SymbolicTensor,
) -> SymbolicTensor:
    """Convolution, scan and gated norm of a state-space mixer; (seq, batch, inner).

    As mamba_ssm's combined kernel (state-spaces/mamba, ops/triton/ssd_combined.py): convolution and
    scan keep only projected input and result, the norm its scales. The output projection stays
    outside, so that its sum over ranks can follow.
    """
    out = _state_space_scan(c, spec, mixed, step)
    del mixed, step
    if spec.norm == "none":
        return _gated(c, out, gate)
    return gated_norm(c, out, gate, spec.groups // c.tp, gate.shape[-1])


def _state_space_scan(
    c: OpContext, spec: StateSpace, mixed: SymbolicTensor, step: SymbolicTensor
) -> SymbolicTensor:
    t, (seq, batch, heads) = c.tape, step.shape
    groups, q = spec.groups // c.tp, spec.chunk
    shape = (batch, heads, groups, seq, spec.head_dim, spec.state_dim, q)
    tokens, width = seq * batch, spec.head_dim * spec.state_dim
    scores_flops = 2 * tokens * q * spec.state_dim * groups
    state_flops = 2 * tokens * width * heads
    flops = scores_flops + 2 * tokens * q * spec.head_dim * heads + 2 * state_flops
    chunks = batch * -(-seq // q)

    def run(
        op: str, channels: SymbolicTensor, operands: tuple[SymbolicTensor, ...], flops: int
    ) -> None:
        states = t.new((chunks, heads, width), "fp32")
        scores = t.new((chunks, groups, q, q), "fp32")
        traffic_bytes = 2 * channels.size_bytes + sum(x.size_bytes for x in operands)
        traffic_bytes += STATE_PASSES * states.size_bytes + 2 * scores.size_bytes
        t.shaped_kernel(op, shape, c.dtype, flops, traffic_bytes)

    channels = fused_convolution(c, mixed, spec.conv_kernel, spec.conv_bias)
    out = t.new((seq, batch, heads * spec.head_dim), c.dtype)
    run("state_space_scan", channels, (step, out), flops)
    saved, saved_step = alias(mixed), alias(step)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        channels = fused_convolution(c, saved, spec.conv_kernel, spec.conv_bias)
        grad_channels, grad_step = t.like(channels), t.like(saved_step)
        operands = (grad, saved_step, grad_channels, grad_step)
        op, total = "state_space_scan_backward", 2 * flops + scores_flops + state_flops
        run(op, channels, operands, total)
        del channels
        for _ in ("step_bias", "decay", "skip"):
            t.parameter_gradient(t.new((heads,), c.dtype))
        kernel, bias = spec.conv_kernel, spec.conv_bias
        return convolution_backward(c, grad_channels, saved, kernel, bias), grad_step

    t.record((out,), (mixed, step), backward)
    return out


def _gated(c: OpContext, x: SymbolicTensor, gate: SymbolicTensor) -> SymbolicTensor:
    """SiLU gate in one kernel; saves both inputs."""
    t = c.tape
    out = t.kernel("swiglu", (x, gate), t.like(gate))
    kept_x, kept_gate = alias(x), alias(gate)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_x, grad_gate = t.like(kept_x), t.like(kept_gate)
        t.kernel("swiglu_backward", (grad, kept_x, kept_gate, grad_gate), grad_x)
        return grad_x, grad_gate

    t.record((out,), (x, gate), backward)
    return out


def gated_norm(
    c: OpContext, x: SymbolicTensor, gate: SymbolicTensor, rows: int, width: int
) -> SymbolicTensor:
    """RMS norm and SiLU gate in one kernel; saves inputs and scales.

    Args:
        c: context of the layer's operations.
        x: normalized input, (seq, batch, channels).
        gate: same size as ``x``.
        rows: norms per token.
        width: size of the weight.
    """
    t, shape = c.tape, gate.shape
    weight = t.constant((width,), c.dtype)
    scale = t.new((shape[0] * shape[1] * rows,), "fp32")
    out = t.like(gate)
    t.kernel("gated_norm", (x, gate, weight, scale), out)
    kept_x, kept_gate = alias(x), alias(gate)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_x, grad_gate = t.like(kept_x), t.like(kept_gate)
        gradient = t.new((width,), c.dtype)
        reads = (grad, kept_x, kept_gate, scale, weight, grad_gate, gradient)
        t.kernel("gated_norm_backward", reads, grad_x)
        t.parameter_gradient(gradient)
        return grad_x, grad_gate

    t.record((out,), (x, gate), backward)
    return out


def fused_delta_rule(
    c: OpContext,
    spec: DeltaRule,
    mixed: SymbolicTensor,
    decay: SymbolicTensor,
    rate: SymbolicTensor,
) -> SymbolicTensor:
    """Convolution and scan of a delta-rule mixer; (seq, batch, inner).

    As flash-linear-attention runs it (fla-org, ops/gated_delta_rule/chunk.py, 0.6.0): kept are
    queries, keys and values, their scales, decay, rate and the inverse of each chunk's triangular
    system; transformed keys and values and states are recomputed.

    Args:
        c: context of the layer's operations.
        spec: the whole mixer.
        mixed: projected queries, keys and values, (seq, batch, channels).
        decay: (seq, batch, value heads), fp32.
        rate: same shape as ``decay``.
    """
    channels = recorded_convolution(c, mixed, spec.conv_kernel, bias=False)
    del mixed
    return delta_rule_scan(c, spec, spec.key_heads // c.tp, channels, decay, rate)


def delta_rule_scan(
    c: OpContext,
    spec: DeltaRule,
    key_heads: int,
    channels: SymbolicTensor,
    decay: SymbolicTensor,
    rate: SymbolicTensor,
) -> SymbolicTensor:
    """The scan in chunked kernels; ``decay`` by head, or by head and channel.

    Kept are queries, keys and values, their scales, decay, rate and each chunk's inverse.
    """
    t, (seq, batch, heads), q = c.tape, decay.shape[:3], spec.chunk
    shape = (batch, heads, key_heads, seq, spec.key_dim, spec.value_dim, q)
    recomputed_flops, flops = delta_rule_flops(spec, seq * batch * heads)
    chunks = batch * -(-seq // q)
    scales = t.new((2, seq, batch, key_heads), "fp32")
    inverse = t.new((seq, batch, heads, q), c.dtype)
    out = t.new((seq, batch, heads * spec.value_dim), c.dtype)
    saved = (alias(channels), alias(decay), alias(rate), scales, inverse)

    def run(op: str, operands: tuple[SymbolicTensor, ...], flops: int) -> None:
        states = t.new((chunks, heads, spec.key_dim * spec.value_dim), "fp32")
        transformed = t.new((seq, batch, heads * (spec.key_dim + spec.value_dim)), c.dtype)
        traffic_bytes = 2 * saved[0].size_bytes + sum(x.size_bytes for x in (*saved[1:], *operands))
        traffic_bytes += 2 * transformed.size_bytes + 2 * states.size_bytes
        t.shaped_kernel(op, shape, c.dtype, flops, traffic_bytes)

    run("delta_rule_scan", (out,), flops)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        gradients = tuple(t.like(x) for x in saved[:3])
        run("delta_rule_scan_backward", (grad, *gradients), 2 * flops + recomputed_flops)
        return gradients

    t.record((out,), (channels, decay, rate), backward)
    return out


def delta_rule_flops(spec: DeltaRule, rows: int) -> tuple[int, int]:
    """FLOPs recomputed in the backward, and of the whole forward scan.

    ``rows``: tokens times value heads.
    """
    q, k, v = spec.chunk, spec.key_dim, spec.value_dim
    system = 2 * q * k + q * q // 3
    transformed, states = 2 * q * (k + v), 4 * k * v
    read = 2 * q * (k + v) + 2 * k * v
    return rows * (transformed + states), rows * (system + transformed + states + read)
