"""Multi-head latent attention in its training form (DeepSeek-V2, arXiv:2405.04434, section 2.1).

Keys and values are made whole from the latent before the core, as in the reference code; the
form that absorbs the up projections is for decoding. Tensor parallelism splits heads: the down
projections run whole on the tokens that a rank has, and with Megatron's sequence parallelism
their results are gathered behind the norm, where they are narrow.
"""

from __future__ import annotations

from ...spec.model.mixers import LatentAttention
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext, norm
from ..ops.linear import column_linear, row_linear, whole_linear
from ..ops.position import rope
from ..symbolic.tape import SymbolicTensor
from .core_attention import core_attention


def latent_mixer(
    c: OpContext, spec: LatentAttention, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Latent attention; takes and gives what every :data:`mixer.LowerMixer` does."""
    heads = spec.heads // strategy.weight_split
    query = _queries(c, spec, heads, x)
    down = whole_linear(c, x, spec.kv_rank + spec.rope_dim, spec.bias, name="kv_down")
    del x
    latent, turning = _parts(c, down, spec.kv_rank)
    del down
    latent = norm(c, latent, "rmsnorm")
    width = heads * (spec.nope_dim + spec.value_dim)
    (up,) = column_linear(c, latent, (width,), False, False, names=("kv_up",))
    del latent
    turning = rope(c, _for_all_heads(c, turning))
    key, value = _keys_and_values(c, spec, heads, up, turning)
    del up, turning
    mixed = core_attention(c, strategy, spec, query, key, value)
    del query, key, value
    return row_linear(c, mixed, hidden, spec.bias, name="output")


def _queries(c: OpContext, spec: LatentAttention, heads: int, x: SymbolicTensor) -> SymbolicTensor:
    """Query heads (seq, batch, heads, width of a key), the rotary part of each turned."""
    name = "query"
    if spec.query_rank is not None:
        x = norm(c, whole_linear(c, x, spec.query_rank, spec.bias, name="query_down"), "rmsnorm")
        name = "query_up"
    (query,) = column_linear(c, x, (heads * spec.key_dim,), False, False, names=(name,))
    del x
    return rope(c, query.view(*query.shape[:2], heads, spec.key_dim), spec.rope_dim)


def _parts(c: OpContext, down: SymbolicTensor, rank: int) -> tuple[SymbolicTensor, SymbolicTensor]:
    """The latent and the rotary key, views of one projection; their gradients are joined."""
    lead, width = down.shape[:2], down.shape[-1]
    latent, turning = down.view(*lead, rank), down.view(*lead, 1, width - rank)

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = c.tape.new((*lead, width), c.dtype)
        return (c.tape.kernel("copy", grads, joined),)

    c.tape.record((latent, turning), (down,), backward)
    return latent, turning


def _for_all_heads(c: OpContext, turning: SymbolicTensor) -> SymbolicTensor:
    """The rotary key of all tokens on each rank; going backward its ranks' parts are summed."""
    if c.tp == 1:
        return turning
    dense = turning
    if c.sequence_parallel:  # a gather takes dense rows, not a part of the projection's
        dense = c.tape.kernel("copy", (turning,), c.tape.like(turning))
    whole = c.gather_sequence(dense)
    del dense
    out = SymbolicTensor(whole.shape, whole.dtype, whole.storage)
    c.tape.record((out,), (turning,), lambda grad: (c.reduce(grad),))
    return out


def _keys_and_values(
    c: OpContext, spec: LatentAttention, heads: int, up: SymbolicTensor, turning: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Keys are copied together with the rotary part; values stay part of the projection."""
    t, lead = c.tape, up.shape[:2]
    plain = up.view(*lead, heads, spec.nope_dim)
    value = up.view(*lead, heads, spec.value_dim)
    key = t.new((*lead, heads, spec.key_dim), up.dtype)
    t.kernel("copy", (plain, turning), key)
    shape, narrow = up.shape, turning.shape

    def backward(
        grad_key: SymbolicTensor, grad_value: SymbolicTensor
    ) -> tuple[SymbolicTensor | None, ...]:
        grad_up = t.kernel("copy", (grad_key, grad_value), t.new(shape, c.dtype))
        part = grad_key.view(*lead, heads, narrow[-1])
        return (grad_up, t.kernel("sum", (part,), t.new(narrow, c.dtype)))

    t.record((key, value), (up, turning), backward)
    return key, value
