"""Gates of experts: each token's weights from its scores, and the way back by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor
from torch.nn import functional as F

from shardwright.executor.models.moe.cosine import TEMPERATURE, cosine_logits
from shardwright.executor.models.moe.gate import route
from shardwright.executor.models.moe.router import RouterClock, RouterState
from shardwright.kernels.dispatch import Dispatcher
from shardwright.spec.model.feed_forward import Moe, group_votes
from shardwright.spec.parallel.batch_partition import IndexRange

WIDTH = 32
"""Of X-MoE's cosines."""
SCORES, WEIGHTS, NUMBERS = 4, 4, 8
"""Bytes of a score, of a weight and of an expert's number."""


@dataclass(frozen=True, slots=True)
class _Gate:
    name: str
    moe: Moe


GATES = (
    _Gate("softmax", Moe(experts=128, topk=8, ffn=1)),
    _Gate(
        "sigmoid in groups",
        Moe(experts=256, topk=8, ffn=1, score="sigmoid", groups=8, groups_per_token=4),
    ),
    _Gate("Switch", Moe(experts=64, topk=1, ffn=1, gate="switch")),
    _Gate("GShard", Moe(experts=64, topk=2, ffn=1, gate="gshard")),
    _Gate("X-MoE", Moe(experts=64, topk=2, ffn=1, gate="xmoe", gate_width=WIDTH)),
)


def _ours(moe: Moe, kernels: Dispatcher, *operands: Any) -> Tensor:
    *inputs, router = operands
    logits = cosine_logits(*inputs) if moe.gate == "xmoe" else inputs[0]
    return route(logits, moe, router)[0]


def _eager(moe: Moe, *operands: Any) -> Tensor:
    *inputs, router = operands
    logits = _cosines(*inputs) if moe.gate == "xmoe" else inputs[0]
    wide = logits.flatten(0, 1).float()
    scores = wide.softmax(-1) if moe.score == "softmax" else wide.sigmoid()
    chosen = _in_groups(scores, moe).topk(moe.topk, dim=-1).indices
    weights = scores.gather(1, chosen)
    if moe.normalizes:
        weights = weights / weights.sum(-1, keepdim=True)
    if moe.gate != "gshard":
        return weights
    drawn = router.uniform("second", 1, weights, 0.0, 1.0).flatten()
    kept = torch.stack((torch.ones_like(drawn), (2 * weights[:, 1] > drawn).float()), dim=1)
    return weights * kept


def _in_groups(scores: Tensor, moe: Moe) -> Tensor:
    if moe.groups == 1:
        return scores
    grouped = scores.detach().view(-1, moe.groups, moe.experts // moe.groups)
    votes = grouped.sort(dim=-1, descending=True).values[..., : group_votes(moe)].sum(-1)
    best = torch.zeros_like(votes).scatter(1, votes.topk(moe.groups_per_token).indices, 1.0)
    return scores.masked_fill(best.repeat_interleave(grouped.shape[-1], 1) == 0, -torch.inf)


def _cosines(x: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
    cosines = F.linear(F.normalize(x.float(), dim=-1), F.normalize(weight.float(), dim=-1))
    return cosines * temperature.float().exp() / TEMPERATURE


def _router(tokens: int, experts: int, device: torch.device) -> RouterState:
    whole = IndexRange(0, tokens)
    return RouterState(
        layer=1,
        seed=0,
        clock=RouterClock(),
        samples=IndexRange(0, 1),
        tokens=(whole,),
        seq_len=tokens,
        all_tokens=tokens,
        losses=torch.zeros(2, dtype=torch.float64, device=device),
        load=torch.zeros(experts, dtype=torch.float64, device=device),
    )


def _operands(moe: Moe, tokens: int, make: Make) -> tuple[Any, ...]:
    router = _router(tokens, moe.experts, make.device)
    if moe.gate == "xmoe":
        inputs = make.normal(tokens, 1, WIDTH), make.normal(moe.experts, WIDTH), make.normal(1)
        return (*inputs, router)
    return make.normal(tokens, 1, moe.experts), router


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Logits to weights and numbers; back with the scores that were kept."""
    tokens = sizes.tokens
    for gate in GATES:
        moe = gate.moe
        width = WIDTH if moe.gate == "xmoe" else moe.experts
        matrix = moe.experts * WIDTH if moe.gate == "xmoe" else 0
        moved = (tokens * width + matrix) * sizes.dtype.itemsize
        chosen = tokens * moe.topk * (WEIGHTS + NUMBERS)
        kept = tokens * moe.experts * SCORES
        common: dict[str, Any] = {
            "family": "expert_gate",
            "case": f"{tokens} tokens, {gate.name}, {moe.topk} of {moe.experts} experts",
            "make": partial(_operands, moe, tokens),
            "ours": partial(_ours, moe),
            "eager": partial(_eager, moe),
            "judged": False,  # too small for the targets, and no kernel of its own
            "compiled": moe.gate != "gshard",  # whose draws are of another generator each sample
        }
        yield Entry(mode="forward", work=Work(moved + chosen), **common)
        yield Entry(mode="backward", work=Work(2 * moved + kept + chosen), **common)
