"""Ring attention: keys and values circulate among ranks that split the sequence.

Each of n ranks holds pieces i and 2n - 1 - i of the sequence, for equal causal work: its own
queries and keys make a causal square, and with the keys of any other rank half of the square is
visible (Liu et al., arXiv:2310.01889; Llama 3, arXiv:2407.21783, section 3.3.2). Every step counts
as one causal square of local length, all adding up to that of the whole sequence; without a mask,
as a full square.

Forward, n - 1 steps send K and V on beside attention; results are merged by their log-sum-exps in
fp32. Backward, K and V circulate again, and their gradients one step further, home: n steps. Sent
by a rank, with K and V of ``kv`` bytes each: forward ``2 (n - 1) kv``, backward ``2 (n - 1) kv + 2
n kv``, gradients in the compute type (as in Transformer Engine's ``p2p``). Kept for the backward:
query, local K and V, output and log-sum-exps. Values of latent attention are copied first: sends
are dense. Left out: Llama 3's gather of all K and V first.

Worked number: Llama-3-8B, 32,768 tokens, cp 8, bf16: K and V of 4,096 tokens and 8 heads of 128 are
2 · 8.4 MB; a rank sends 117 MB forward and 252 MB backward per layer.
"""

from __future__ import annotations

from ...spec.model.mixers import Attention, LatentAttention
from ..ops.attention import flash_backward, flash_forward
from ..ops.attention_mask import Scores, scores_of
from ..ops.context import OpContext, cast
from ..symbolic.tape import SymbolicTensor


def ring_attention(
    c: OpContext,
    spec: Attention | LatentAttention,
    query: SymbolicTensor,
    key: SymbolicTensor,
    value: SymbolicTensor,
) -> SymbolicTensor:
    """Flash attention of local queries over the keys of the whole ring.

    Args:
        c: context of the layer's operations, with its ring.
        spec: the mixer.
        query: (local seq, batch, heads, key width).
        key: (local seq, batch, kv_heads, key width).
        value: (local seq, batch, kv_heads, value width).

    Returns:
        (local seq, batch, heads · value width).
    """
    scores = scores_of(spec, query.shape[0], key.shape[0])
    dense = value
    if isinstance(spec, LatentAttention) and c.head_exchange.size == 1:  # strided beside the keys
        dense = c.tape.kernel("copy", (value,), c.tape.like(value))
    operands = (query, key, dense)
    out, log_sum = _forward(c, scores, operands)
    seq, batch, heads, width = out.shape
    joined = out.view(seq, batch, heads * width)
    inputs = (query, key, value)
    c.tape.record(
        (joined,), inputs, lambda grad: _backward(c, scores, operands, (out, log_sum), grad)
    )
    return joined


def _forward(
    c: OpContext, scores: Scores, operands: tuple[SymbolicTensor, SymbolicTensor, SymbolicTensor]
) -> tuple[SymbolicTensor, SymbolicTensor]:
    t, steps = c.tape, c.ring.size
    query, *key_value = operands
    received = _pass_on(c, key_value)
    out, log_sum = flash_forward(c, scores, (query, *key_value))
    merged = cast(t, out, "fp32")
    del out
    for step in range(1, steps):
        key_value = received
        received = _pass_on(c, key_value) if step + 1 < steps else []
        step_out, step_log_sum = flash_forward(c, scores, (query, *key_value))
        t.kernel("merge_attention", (merged, log_sum, step_out, step_log_sum), merged)
        del step_out, step_log_sum
    return cast(t, merged, c.dtype), log_sum


def _backward(
    c: OpContext,
    scores: Scores,
    operands: tuple[SymbolicTensor, SymbolicTensor, SymbolicTensor],
    results: tuple[SymbolicTensor, SymbolicTensor],
    grad: SymbolicTensor,
) -> tuple[SymbolicTensor | None, ...]:
    t, steps = c.tape, c.ring.size
    query, *key_value = operands
    received = _pass_on(c, key_value)
    step_grad_query, *gradients = flash_backward(c, scores, (query, *key_value), results, grad)
    grad_query = cast(t, step_grad_query, "fp32")
    del step_grad_query
    for step in range(1, steps):
        key_value = received
        to_send = [*(key_value if step + 1 < steps else []), *gradients]
        arrived = _pass_on(c, to_send)
        received, ring_gradients = arrived[:-2], arrived[-2:]
        del arrived, to_send
        step_grad_query, *gradients = flash_backward(c, scores, (query, *key_value), results, grad)
        t.kernel("add", (grad_query, step_grad_query), grad_query)
        del step_grad_query
        for gradient, ring_gradient in zip(gradients, ring_gradients, strict=True):
            t.kernel("add", (gradient, ring_gradient), gradient)
        del gradient, ring_gradient, ring_gradients
    home = _pass_on(c, gradients, free_kernels=0)
    return (cast(t, grad_query, c.dtype), *home)


def _pass_on(
    c: OpContext, tensors: list[SymbolicTensor], free_kernels: int = 1
) -> list[SymbolicTensor]:
    received = [c.tape.like(x) for x in tensors]
    c.tape.collective("send_recv", c.ring, *tensors, term="exposed_cp", free_kernels=free_kernels)
    return received
