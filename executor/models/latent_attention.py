"""Multi-head latent attention in training form (DeepSeek-V2, arXiv:2405.04434, section 2.1).

Runs what ``shardwright.costmodel.layers.latent_attention`` prices, in the same order: keys and
values are expanded from the latent before the core. The last ``rope_dim`` channels of a query or
key head rotate by position; the keys' are one head shared by all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...kernels.attention.rope import Angles, rotate_heads
from ...spec.model.mixers import LatentAttention
from ...spec.parallel.sequence_partition import count
from .tensor_parallel import TensorParallel

if TYPE_CHECKING:
    from .block import Block


def latent_attention(block: Block, spec: LatentAttention, x: Tensor) -> Tensor:
    """Latent attention of a block; a ``block.RunSubLayer``."""
    positions = block.sequence.tokens.positions
    rows = count(positions) if positions else block.seq_len
    angles = Angles(rows, spec.rope_dim, spec.rope_theta, positions)
    query = _queries(block, spec, angles, x)
    down = block.replicated(x, "kv_down")
    latent, rotary_key = down.split([spec.kv_rank, spec.rope_dim], -1)  # type: ignore[no-untyped-call]
    latent = _rms_norm(block, "kv_norm", latent)
    (up,) = block.column(latent, "kv_up")
    if block.tp.size > 1:
        rotary_key = _ForAllHeads.apply(rotary_key, block.tp)  # type: ignore[no-untyped-call]
    rotary_key = rotate_heads(rotary_key.unsqueeze(2), angles)
    heads = up.view(*up.shape[:2], -1, spec.nope_dim + spec.value_dim)
    key, value = _KeysAndValues.apply(heads, rotary_key, spec.nope_dim)  # type: ignore[no-untyped-call]
    del down, latent, up, heads, rotary_key
    recompute = block.recompute == "selective"
    attended = block.core(block.sequence, block.attend, spec.heads, recompute, query, key, value)
    return block.row(attended, "output")


def _rms_norm(block: Block, name: str, x: Tensor) -> Tensor:
    return block.apply_norm(name, "rmsnorm", block.layer.norm_eps, x)


def _queries(block: Block, spec: LatentAttention, angles: Angles, x: Tensor) -> Tensor:
    name = "query"
    if spec.query_rank is not None:
        down = block.replicated(x, "query_down")
        x, name = _rms_norm(block, "query_norm", down), "query_up"
    (query,) = block.column(x, name)
    heads: Tensor = query.unflatten(-1, (-1, spec.key_dim))  # type: ignore[no-untyped-call]
    return rotate_heads(heads, angles)


class _ForAllHeads(Function):
    """The replicated rotary key; its gradient is summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TensorParallel) -> Tensor:
        ctx.tp = tp
        return tp.gather_sequence(x) if tp.sequence_parallel else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.tp.reduce(grads[0]), None


class _KeysAndValues(Function):
    """Keys copied beside the rotary part; values stay in the projection."""

    @staticmethod
    def forward(ctx: Any, up: Tensor, rotary_key: Tensor, nope_dim: int) -> tuple[Tensor, Tensor]:
        ctx.nope_dim = nope_dim
        plain, value = up[..., :nope_dim], up[..., nope_dim:]
        shared = rotary_key.expand(*plain.shape[:-1], rotary_key.shape[-1])
        return torch.cat((plain, shared), -1), value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_key, grad_value = grads
        grad_up = torch.cat((grad_key[..., : ctx.nope_dim], grad_value), -1)
        return grad_up, grad_key[..., ctx.nope_dim :].sum(2, keepdim=True), None


__all__ = ["latent_attention"]
