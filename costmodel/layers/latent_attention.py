"""Multi-head latent attention in its training form (DeepSeek-V2, arXiv:2405.04434, section 2.1).

Keys and values are expanded from the latent before the core, as in the reference code; absorbed up
projections are for decoding. Tensor parallelism splits heads; down projections are replicated over
a rank's tokens, and sequence parallelism (Megatron) gathers their narrow results after the norm.
"""

from __future__ import annotations

from ...spec.model.mixers import LatentAttention
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext, norm, split_heads
from ..ops.indexer import select_keys
from ..ops.linear import column_linear, replicated_linear, row_linear
from ..ops.position import rope
from ..symbolic.tape import SymbolicTensor
from .core_attention import core_attention


def latent_attention(
    c: OpContext, spec: LatentAttention, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Latent attention; a :data:`mixer.LowerMixer`."""
    heads = spec.heads // strategy.weight_split
    query = _queries(c, spec, heads, x)
    down = replicated_linear(c, x, spec.kv_rank + spec.rope_dim, spec.bias, name="kv_down")
    del x
    latent, rotary_key = _latent_and_rotary_key(c, down, spec.kv_rank)
    del down
    latent = norm(c, latent, "rmsnorm")
    width = heads * (spec.nope_dim + spec.value_dim)
    (up,) = column_linear(c, latent, (width,), False, False, names=("kv_up",))
    del latent
    rotary_key = _gather_rotary_key(c, rotary_key)
    if spec.rotary:
        rotary_key = rope(c, rotary_key)
    key, value = _keys_and_values(c, spec, heads, up, rotary_key)
    del up, rotary_key
    mixed = core_attention(c, strategy, spec, query, key, value)
    del query, key, value
    return row_linear(c, mixed, hidden, spec.bias, name="output")


def _queries(c: OpContext, spec: LatentAttention, heads: int, x: SymbolicTensor) -> SymbolicTensor:
    name = "query"
    if spec.query_rank is not None:
        latent = norm(
            c, replicated_linear(c, x, spec.query_rank, spec.bias, name="query_down"), "rmsnorm"
        )
        if spec.indexer is not None:
            select_keys(c, spec.indexer, spec.rope_dim, latent, x)
        x, name = latent, "query_up"
        del latent
    (query,) = column_linear(c, x, (heads * spec.key_dim,), False, False, names=(name,))
    del x
    if not spec.rotary:
        return split_heads(c, query, heads, ordered=False)
    return rope(c, query.view(*query.shape[:2], heads, spec.key_dim), spec.rope_dim)


def _latent_and_rotary_key(
    c: OpContext, down: SymbolicTensor, rank: int
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Latent and rotary key, views of one projection with joint gradient."""
    lead, width = down.shape[:2], down.shape[-1]
    latent, rotary_key = down.view(*lead, rank), down.view(*lead, 1, width - rank)

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = c.tape.new((*lead, width), c.dtype)
        return (c.tape.kernel("copy", grads, joined),)

    c.tape.record((latent, rotary_key), (down,), backward)
    return latent, rotary_key


def _gather_rotary_key(c: OpContext, rotary_key: SymbolicTensor) -> SymbolicTensor:
    if c.tp == 1:
        return rotary_key
    dense = rotary_key
    if c.sequence_parallel:  # a gather takes dense rows, not a slice of the projection
        dense = c.tape.kernel("copy", (rotary_key,), c.tape.like(rotary_key))
    gathered = c.gather_sequence(dense)
    del dense
    out = SymbolicTensor(gathered.shape, gathered.dtype, gathered.storage)
    c.tape.record((out,), (rotary_key,), lambda grad: (c.reduce(grad),))
    return out


def _keys_and_values(
    c: OpContext, spec: LatentAttention, heads: int, up: SymbolicTensor, rotary_key: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Keys, copied together with their rotary part; values, a view."""
    t, lead = c.tape, up.shape[:2]
    nope_key = up.view(*lead, heads, spec.nope_dim)
    value = up.view(*lead, heads, spec.value_dim)
    key = t.new((*lead, heads, spec.key_dim), up.dtype)
    t.kernel("copy", (nope_key, rotary_key), key)
    shape, rotary_shape = up.shape, rotary_key.shape

    def backward(
        grad_key: SymbolicTensor, grad_value: SymbolicTensor
    ) -> tuple[SymbolicTensor | None, ...]:
        grad_up = t.kernel("copy", (grad_key, grad_value), t.new(shape, c.dtype))
        part = grad_key.view(*lead, heads, rotary_shape[-1])
        return (grad_up, t.kernel("sum", (part,), t.new(rotary_shape, c.dtype)))

    t.record((key, value), (up, rotary_key), backward)
    return key, value
