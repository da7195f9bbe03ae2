"""Experts of the reference: every gate by its definition, in plain loops and torch's autograd.

Nothing is shared with the layers that ranks run, but for the seeds of random streams. A group is
the tokens that one rank of the plan routes at once: capacity and balance are of a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from ...spec.model.experts import experts_of
from ...spec.model.feed_forward import Activation, Moe, expert_capacity
from ...spec.model.towers import layer_contexts
from ...spec.parallel.batch_partition import batch_partition
from ...spec.parallel.sequence_partition import local_tokens
from ...spec.plan.plan import Plan
from ..models.moe.router import draws
from .parts import ReferenceWeights, linear

TEMPERATURE = 0.07
"""X-MoE's first temperature."""


@dataclass(slots=True)
class ReferenceRouter:
    """A layer's routing on one process.

    ``groups``: (samples of a micro-batch, positions) that a rank routes together. ``first``: number
    of the first sample in the global batch. ``bias``: (experts,) of the scores that choose;
    ``load``: (experts,) assignments of this step. ``losses``: weighed sums of a step's losses that
    balance, before their coefficients.
    """

    layer: int
    seed: int
    groups: list[tuple[range, list[int]]]
    all_tokens: int
    bias: Tensor
    load: Tensor
    step: int = 0
    first: int = 0
    losses: list[Tensor] = field(default_factory=lambda: [torch.zeros(()), torch.zeros(())])

    def uniform(self, kind: str, x: Tensor, width: int, low: float, high: float) -> Tensor:
        """(batch, seq, width) numbers of the samples from ``first`` on."""
        out = torch.empty(*x.shape[:2], width, dtype=x.dtype, device=x.device)
        for row in range(x.shape[0]):
            stream = draws(self.seed, kind, self.layer, self.step, self.first + row, x.device)
            out[row].uniform_(low, high, generator=stream)
        return out


def routed_groups(plan: Plan, layer: int) -> list[tuple[range, list[int]]]:
    """Samples of a micro-batch and positions that each rank of a layer's stage routes at once."""
    seq = layer_contexts(plan.model, plan.workload.seq_len)[layer].tokens
    found: dict[tuple[int, int, tuple[int, ...]], None] = {}
    for stage in plan.program.stages:
        first = 0
        for devices in stage.devices:
            ranks = range(first, first + devices.count)
            for parts in stage.virtual_stages:
                for index, _, strategy in plan.chunk_layers(parts, devices.device_group):
                    if index != layer:
                        continue
                    shares = batch_partition(stage, strategy, plan.program.micro_batch_samples)
                    for rank in ranks:
                        spans = local_tokens(strategy, rank, seq)
                        positions = tuple(i for span in spans for i in range(*span))
                        found[(*shares[rank], positions)] = None
            first += devices.count
    return [(range(first, end), list(positions)) for first, end, positions in found]


def reference_routers(plan: Plan, seed: int, device: torch.device) -> dict[int, ReferenceRouter]:
    """Routing of every layer with experts, by number."""
    contexts = layer_contexts(plan.model, plan.workload.seq_len)
    return {
        index: ReferenceRouter(
            layer=index,
            seed=seed,
            groups=routed_groups(plan, index),
            all_tokens=plan.workload.global_batch * contexts[index].tokens,
            bias=torch.zeros(moe.experts, device=device),
            load=torch.zeros(moe.experts, device=device),
        )
        for index, layer in enumerate(plan.model.layers())
        if (moe := experts_of(layer)) is not None
    }


def reference_moe(
    moe: Moe, weights: ReferenceWeights, x: Tensor, router: ReferenceRouter
) -> Tensor:
    """Every expert run on its tokens, one after another; ``x`` is whole micro-batches."""
    balance = moe.balance
    noisy = x
    if balance is not None and balance.jitter:
        low, high = 1 - balance.jitter, 1 + balance.jitter
        noisy = x * router.uniform("jitter", x, x.shape[-1], low, high)
        x = noisy if balance.jitters == "input" else x
    logits = _logits(moe, weights, noisy).float()
    inner = linear(weights, "latent_down", x) if moe.latent is not None else x
    if moe.gate == "soft":
        out = _soft(moe, weights, inner, logits)
    else:
        shares = _shares(moe, logits, router)
        out = _weighted(moe, weights, inner, shares)
    if moe.latent is not None:
        out = linear(weights, "latent_up", out)
    return out + _shared(moe, weights, x) if moe.shared_ffn else out


def _logits(moe: Moe, weights: ReferenceWeights, x: Tensor) -> Tensor:
    if moe.gate_width is None:
        return F.linear(x, weights["router.weight"], weights.get("router.bias"))
    down = linear(weights, "router_down", x).float().unsqueeze(-2)
    cosines = F.cosine_similarity(down, weights["router.weight"].float(), dim=-1)
    return cosines * weights["router_temperature"].float().exp() / TEMPERATURE


def _soft(moe: Moe, weights: ReferenceWeights, x: Tensor, logits: Tensor) -> Tensor:
    slots = torch.einsum("bns,bnh->bsh", logits.softmax(1).to(x.dtype), x)
    parts = [
        _expert(moe, weights, expert, slots[:, expert * moe.slots : (expert + 1) * moe.slots])
        for expert in range(moe.experts)
    ]
    return torch.einsum("bns,bsh->bnh", logits.softmax(2).to(x.dtype), torch.cat(parts, 1))


def _expert(moe: Moe, weights: ReferenceWeights, expert: int, x: Tensor) -> Tensor:
    def project(name: str, y: Tensor) -> Tensor:
        bias = weights.get(f"experts_{name}.bias")
        own = None if bias is None else bias[expert]
        return F.linear(y, weights[f"experts_{name}.weight"][expert], own)

    inner = [project(name, x) for name in (("gate", "up") if moe.gated else ("up",))]
    return project("down", activation_function(moe.activation, *inner))


def _weighted(moe: Moe, weights: ReferenceWeights, x: Tensor, shares: Tensor) -> Tensor:
    """Outputs of experts by (batch, seq, experts) shares; of a share of 0 nothing is computed."""
    tokens, flat = x.flatten(0, 1), shares.flatten(0, 1)
    total = torch.zeros(tokens.shape, dtype=torch.float32, device=x.device)
    for expert in range(moe.experts):
        mine = (flat[:, expert] != 0).nonzero().squeeze(1)
        made = _expert(moe, weights, expert, tokens[mine])
        total = total.index_add(0, mine, made * flat[mine, expert].unsqueeze(1))
    return total.to(x.dtype).view(x.shape)


def _shares(moe: Moe, logits: Tensor, router: ReferenceRouter) -> Tensor:
    """(batch, seq, experts) weight of each expert in each token."""
    scores = logits.softmax(-1) if moe.score == "softmax" else logits.sigmoid()
    if moe.gate == "expert_choice":
        picked = torch.zeros_like(scores)
        for samples, positions in _groups(router, scores.shape[0]):
            _experts_choose(moe, scores, picked, samples, positions)
        return scores * picked
    ranked = scores + router.bias if moe.balance and moe.balance.bias_rate else scores
    chosen = _allowed(moe, ranked.flatten(0, 1)).topk(moe.topk, dim=-1).indices
    chosen = chosen.view(*scores.shape[:2], moe.topk)
    shares = scores.gather(2, chosen)
    if moe.normalizes:
        shares = shares / shares.sum(-1, keepdim=True)
    kept = torch.ones_like(shares)
    if moe.gate == "gshard":
        kept[..., 1:] = 2 * shares[..., 1:] > router.uniform("second", shares, 1, 0.0, 1.0)
    if moe.balance is not None:
        _add_losses(moe, logits, scores, chosen, router)
    if moe.capacity_factor is not None:
        for samples, positions in _groups(router, scores.shape[0]):
            _drop(moe, chosen, shares, kept, samples, positions)
    return torch.zeros_like(scores).scatter(2, chosen, shares * kept)


def _groups(router: ReferenceRouter, samples: int) -> Iterator[tuple[list[int], list[int]]]:
    """Samples, counted from the first, and positions of every group in whole micro-batches."""
    micro_batch = max(group.stop for group, _ in router.groups)
    for start in range(0, samples, micro_batch):
        for group, positions in router.groups:
            yield [start + sample for sample in group], positions


def _drop(
    moe: Moe, chosen: Tensor, shares: Tensor, kept: Tensor, samples: list[int], positions: list[int]
) -> None:
    """Drop a group's assignments beyond capacity, in GShard's order or by probability."""
    tokens = [(sample, position) for position in positions for sample in samples]
    order = [(s, p, k) for k in range(moe.topk) for s, p in tokens if kept[s, p, k]]
    if moe.capacity_order == "probability":
        order.sort(key=lambda place: -float(shares[place].detach()))
    left = [expert_capacity(moe, len(tokens))] * moe.experts
    for place in order:
        expert = int(chosen[place])
        if left[expert] == 0:
            kept[place] = 0.0
        else:
            left[expert] -= 1


def _experts_choose(
    moe: Moe, scores: Tensor, picked: Tensor, samples: list[int], positions: list[int]
) -> None:
    rows = torch.tensor(samples).repeat_interleave(len(positions))
    columns = torch.tensor(positions).repeat(len(samples))
    best = scores[rows, columns].detach().topk(expert_capacity(moe, len(rows)), dim=0).indices
    for expert in range(moe.experts):
        mine = best[:, expert]
        picked[rows[mine], columns[mine], expert] = 1.0


def _add_losses(
    moe: Moe, logits: Tensor, scores: Tensor, chosen: Tensor, router: ReferenceRouter
) -> None:
    balance = moe.balance
    if balance is None:
        return
    chances = scores / scores.sum(-1, keepdim=True)
    masks = F.one_hot(chosen, moe.experts).float().sum(2)
    router.load += masks.sum((0, 1))
    router.losses[1] = router.losses[1] + logits.logsumexp(-1).square().sum() / router.all_tokens
    for samples, positions in _groups(router, scores.shape[0]):
        parts = [[sample] for sample in samples] if balance.per == "sequence" else [samples]
        for part in parts:
            mask, chance = masks[part][:, positions], chances[part][:, positions]
            count = mask.shape[0] * mask.shape[1]
            loss = moe.experts * (mask.mean((0, 1)) * chance.mean((0, 1))).sum()
            router.losses[0] = router.losses[0] + loss * count / router.all_tokens


def _allowed(moe: Moe, scores: Tensor) -> Tensor:
    if moe.groups_per_token >= moe.groups:
        return scores
    grouped = scores.view(scores.shape[0], moe.groups, -1)
    ranked = grouped.sort(dim=-1, descending=True).values
    worth = ranked[..., :2].sum(-1) if moe.score == "sigmoid" else ranked[..., 0]
    order = worth.argsort(dim=-1, descending=True)
    kept = torch.zeros_like(worth, dtype=torch.bool)
    kept[torch.arange(len(worth)).unsqueeze(1), order[:, : moe.groups_per_token]] = True
    return grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(1)


def _shared(moe: Moe, weights: ReferenceWeights, x: Tensor) -> Tensor:
    names = ("gate", "up") if moe.gated else ("up",)
    inner = [linear(weights, f"shared_{name}", x) for name in names]
    out = linear(weights, "shared_down", activation_function(moe.activation, *inner))
    if not moe.shared_gate:
        return out
    return out * F.linear(x, weights["shared_expert_gate.weight"]).sigmoid()


def activation_function(kind: Activation, *projected: Tensor) -> Tensor:
    """Activation of one projection, or of a gate and its gated projection."""
    if len(projected) == 2:
        return F.silu(projected[0]) * projected[1]
    return F.gelu(projected[0], approximate="tanh" if kind == "gelu_tanh" else "none")


__all__ = ["ReferenceRouter", "reference_moe", "reference_routers", "routed_groups"]
