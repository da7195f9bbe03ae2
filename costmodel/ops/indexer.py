"""Selection of each query's keys by a lightning indexer (DeepSeek-V3.2, arXiv:2512.02556, 2.1).

Small heads score every key, ``sum over heads of w · relu(q · k)``; the ``topk`` best are attended
to. The selection has no gradient; the indexer's own loss is not lowered. With T queries, S keys, H
heads of D: 2·T·S·H·(D + 1) FLOPs. Worked number: T = S = 4096, H = 64, D = 128: 277 GFLOP, beside
1.4 TFLOP of 128 latent heads over all keys, 0.5 over 2048 of them.
"""

from __future__ import annotations

from ...spec.model.mixers import Indexer, LatentAttention
from ..symbolic.tape import SymbolicTensor, Tape
from .context import OpContext, cast

INDEX = "int64"


def selection_flops(spec: LatentAttention, hidden: int, tokens: int) -> int:
    """FLOPs of choosing keys in a whole sample, which has no backward; 0 without an indexer."""
    indexer, rank = spec.indexer, spec.query_rank
    if indexer is None or rank is None:
        return 0
    heads, dim = indexer.heads, indexer.head_dim
    products = rank * heads * dim + hidden * (dim + heads)
    return 2 * tokens * (products + tokens * heads * (dim + 1))


def select_keys(
    c: OpContext, spec: Indexer, rope_dim: int, latent: SymbolicTensor, x: SymbolicTensor
) -> None:
    """Queries from the normalized ``latent``, keys and weights from ``x``; scores, best keys.

    A tensor-parallel rank selects for its own tokens: narrow keys are gathered before, the numbers
    of the selected ones after. Plain torch holds every head's scores, a fused kernel their sum.
    """
    t, (seq, batch, hidden) = c.tape, x.shape
    t.product(seq * batch, latent.shape[-1], spec.heads * spec.head_dim, c.dtype)
    query = t.new((seq, batch, spec.heads, spec.head_dim), c.dtype)
    t.product(seq * batch, hidden, spec.head_dim, c.dtype)
    key = t.new((seq, batch, spec.head_dim), c.dtype)
    t.kernel("layer_norm", (key,), key)
    table = t.constant((seq, rope_dim // 2), c.dtype)
    for value in (query, key):
        t.kernel("rope", (value, table), value)
    t.product(seq * batch, hidden, spec.heads, c.dtype)
    weights = t.new((seq, batch, spec.heads), c.dtype)
    total = _scores(c, spec, query, c.gather_sequence(key), weights)
    best = t.new((seq, batch, min(spec.topk, total.shape[-1])), INDEX)
    c.gather_sequence(t.kernel("topk", (total,), best))


def _scores(
    c: OpContext,
    spec: Indexer,
    query: SymbolicTensor,
    key: SymbolicTensor,
    weights: SymbolicTensor,
) -> SymbolicTensor:
    """The weighted scores of every key, (batch, queries, keys)."""
    t, (seq, batch, heads, dim) = c.tape, query.shape
    keys, fused = key.shape[0], c.stack.attention == "flash"
    if not fused:
        query, key, weights = (cast(t, value, "fp32") for value in (query, key, weights))
    total = t.new((batch, seq, keys), "fp32")
    sizes = (batch, seq * heads, dim, keys)
    flops = 2 * batch * seq * heads * dim * keys
    reads = query.size_bytes + key.size_bytes
    if fused:
        flops += 2 * batch * seq * heads * keys
        traffic = reads + weights.size_bytes + total.size_bytes
        t.shaped_kernel("batched_matmul", sizes, c.dtype, flops, traffic)
    else:
        scores = t.new((batch, seq, heads, keys), "fp32")
        t.shaped_kernel("batched_matmul", sizes, "fp32", flops, reads + scores.size_bytes)
        for op in ("mul", "relu"):
            scores = t.kernel(op, (scores,), t.like(scores))
        _weighted_sum(t, scores, weights, total)
        del scores
    return total


def _weighted_sum(
    t: Tape, scores: SymbolicTensor, weights: SymbolicTensor, total: SymbolicTensor
) -> None:
    batch, seq, heads, keys = scores.shape
    sizes = (batch * seq, 1, heads, keys)
    traffic = scores.size_bytes + weights.size_bytes + total.size_bytes
    t.shaped_kernel("batched_matmul", sizes, "fp32", 2 * batch * seq * heads * keys, traffic)
