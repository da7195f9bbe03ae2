"""Rules for the sizes of a block's mixers and experts."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import nearest_divisor
from ..model.feed_forward import BALANCED_GATES, Moe
from ..model.layers import BlockLayer
from ..model.mixers import Attention, DeltaRule, LatentAttention, Mixer, ParallelMixers, StateSpace
from .problem import Problem


def block_problems(block: BlockLayer) -> Iterator[Problem]:
    """Problems of a block, which keep it from being planned."""
    if block.attention is None and block.mlp is None:
        yield Problem("block", "neither mixer nor feed-forward part", "at least one of them")
    if block.attention is not None:
        yield from _mixer_problems(block.attention)
    if block.cross_attention is not None:
        yield from _cross_problems(block)
    if isinstance(block.mlp, Moe):
        yield from _expert_problems(block.mlp)
    if block.shared_norm and not block.parallel:
        yield Problem("shared_norm", "true", "false, or parallel parts that share the norm")
    both = block.attention is not None and block.mlp is not None and block.cross_attention is None
    if block.parallel and not (both and block.norm_placement == "pre"):
        allowed = "a mixer and a feed-forward part, normed before and without cross-attention"
        yield Problem("parallel", "true", allowed)


def _mixer_problems(mixer: Mixer) -> Iterator[Problem]:
    if isinstance(mixer, Attention):
        yield from _attention_problems(mixer)
    if isinstance(mixer, ParallelMixers):
        yield from _mixer_problems(mixer.attention)
        yield from _mixer_problems(mixer.state_space)
    if isinstance(mixer, LatentAttention) and mixer.rope_dim % 2:
        yield Problem("rope_dim", mixer.rope_dim, "an even number", mixer.rope_dim + 1)
    if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
        if mixer.query_rank is None:
            yield Problem("indexer", "given", "nothing without query_rank, whose latent it reads")
        if mixer.indexer.head_dim < mixer.rope_dim:
            allowed = f"at least rope_dim {mixer.rope_dim}"
            yield Problem("indexer.head_dim", mixer.indexer.head_dim, allowed, mixer.rope_dim)
    if isinstance(mixer, StateSpace) and mixer.heads % mixer.groups:
        near = nearest_divisor(mixer.groups, mixer.heads)
        yield Problem("groups", mixer.groups, f"a divisor of heads {mixer.heads}", near)
    if isinstance(mixer, DeltaRule) and mixer.value_heads % mixer.key_heads:
        near = nearest_divisor(mixer.key_heads, mixer.value_heads)
        allowed = f"a divisor of value_heads {mixer.value_heads}"
        yield Problem("key_heads", mixer.key_heads, allowed, near)


def _attention_problems(spec: Attention) -> Iterator[Problem]:
    heads, kv_heads, head_dim = spec.heads, spec.kv_heads, spec.head_dim
    if spec.window is not None and spec.chunk is not None:
        yield Problem("chunk", spec.chunk, "nothing beside a window")
    if not spec.qk_norm_weight and (spec.qk_norm_joint or not spec.qk_norm):
        yield Problem("qk_norm_weight", "false", "true but for norms of each head", "true")
    if spec.qk_norm_joint and not spec.qk_norm:
        yield Problem("qk_norm_joint", "true", "false without qk_norm", "false")
    if heads % kv_heads:
        near = nearest_divisor(kv_heads, heads)
        yield Problem("kv_heads", kv_heads, f"a divisor of heads {heads}", near)
    if not spec.rotary:
        return
    if spec.rotary_dim is None:
        if head_dim % 2:
            yield Problem("head_dim", head_dim, "an even number (rotary positions)", head_dim + 1)
    elif spec.rotary_dim % 2 or spec.rotary_dim > head_dim:
        near = min(spec.rotary_dim // 2 * 2 or 2, head_dim // 2 * 2)
        allowed = f"an even number of at most head_dim {head_dim}"
        yield Problem("rotary_dim", spec.rotary_dim, allowed, near)


def _cross_problems(block: BlockLayer) -> Iterator[Problem]:
    spec = block.cross_attention
    if spec is None:
        return
    yield from _attention_problems(spec)
    if spec.mask != "full" or spec.window is not None:
        allowed = "the mask full and no window: it sees the whole of the other tower"
        yield Problem("cross_attention", f"mask {spec.mask}, window {spec.window}", allowed)


def _expert_problems(moe: Moe) -> Iterator[Problem]:
    if moe.topk > moe.experts:
        yield Problem("topk", moe.topk, f"at most the {moe.experts} experts", moe.experts)
    if moe.experts % moe.groups:
        near = nearest_divisor(moe.groups, moe.experts)
        yield Problem("groups", moe.groups, f"a divisor of the {moe.experts} experts", near)
        return
    if moe.groups_per_token > moe.groups:
        allowed = f"at most the {moe.groups} groups"
        yield Problem("groups_per_token", moe.groups_per_token, allowed, moe.groups)
        return
    reachable = moe.experts // moe.groups * moe.groups_per_token
    if moe.topk > reachable and moe.topk <= moe.experts:
        allowed = f"at most the {reachable} experts of {moe.groups_per_token} groups"
        yield Problem("topk", moe.topk, allowed, reachable)
    if moe.shared_gate and not moe.shared_ffn:
        yield Problem("shared_gate", "true", "false without shared experts")
    yield from _gate_problems(moe)
    yield from _balance_problems(moe)


GATE_TOPK = {"switch": 1, "gshard": 2, "soft": 1}
"""Experts of a token that a gate's definition fixes; 1 where slots take their place."""


def _gate_problems(moe: Moe) -> Iterator[Problem]:
    gate, fixed = moe.gate, GATE_TOPK.get(moe.gate)
    if fixed is not None and moe.topk != fixed:
        yield Problem("topk", moe.topk, f"{fixed} with the gate {gate}", fixed)
    if (gate == "xmoe") != (moe.gate_width is not None):
        given = "left out" if moe.gate_width is None else moe.gate_width
        yield Problem("gate_width", given, "a width with the gate xmoe, and with no other")
    if gate != "soft" and moe.slots != 1:
        yield Problem("slots", moe.slots, "1 but for the gate soft", 1)
    if gate == "soft" and moe.capacity_factor is not None:
        yield Problem("capacity_factor", moe.capacity_factor, "none with the gate soft; use slots")
    others = (
        ("score", moe.score, "softmax"),
        ("groups", moe.groups, 1),
        ("weigh", moe.weigh, "outputs"),
        ("normalize", moe.normalize, True),
    )
    for name, given, usual in others if gate != "topk" else ():
        if given != usual:
            yield Problem(name, str(given).lower(), f"{usual} with the gate {gate}", usual)
    if moe.capacity_factor is None and moe.capacity_order != "position":
        yield Problem("capacity_order", moe.capacity_order, "position without a capacity_factor")
    if gate in BALANCED_GATES and moe.capacity_order != "position":
        yield Problem("capacity_order", moe.capacity_order, f"position with the gate {gate}")


def _balance_problems(moe: Moe) -> Iterator[Problem]:
    balance = moe.balance
    if balance is None:
        return
    if moe.gate in BALANCED_GATES:
        yield Problem("balance", "given", f"none with the gate {moe.gate}, which is balanced")
    if not (balance.has_loss or balance.bias_rate or balance.jitter):
        yield Problem("balance", "all 0", "an aux_loss, z_loss, bias_rate or jitter above 0")
    if balance.jitter >= 1:
        yield Problem("balance.jitter", balance.jitter, "below 1: factors stay above 0", 0.01)
    if balance.per == "sequence" and not balance.aux_loss:
        yield Problem("balance.per", "sequence", "group without an aux_loss", "group")
    if balance.jitters == "input" and not balance.jitter:
        yield Problem("balance.jitters", "input", "router without a jitter", "router")
